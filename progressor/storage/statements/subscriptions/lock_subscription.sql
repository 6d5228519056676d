-- Lock a subscription: one reader at a time takes slices, and an operator changes nothing meanwhile.
SELECT s.slices FROM progressor.subscriptions AS s WHERE s.name = %(name)s::text FOR UPDATE
