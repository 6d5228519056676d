-- The processes of a slice of which anything is parked.
SELECT DISTINCT p.namespace, p.process_id
FROM progressor.parked AS p
WHERE p.name = %(name)s::text AND p.slice = %(slice)s::bigint
