-- After lock_subscription: remove a subscription, with its slices and readers.
WITH slices AS (
    DELETE FROM progressor.subscription_slices AS s WHERE s.name = %(name)s::text
),

readers AS (
    DELETE FROM progressor.subscription_readers AS r WHERE r.name = %(name)s::text
)

DELETE FROM progressor.subscriptions AS s WHERE s.name = %(name)s::text
