-- Forget what is parked of a subscription.
DELETE FROM progressor.parked AS p WHERE p.name = %(name)s::text
