-- The number of slices of a subscription, if there is one.
SELECT s.slices FROM progressor.subscriptions AS s WHERE s.name = %(name)s::text
