-- A namespace as its workers registered it.
SELECT
    n.name,
    n.paused,
    n.options,
    n.schemas,
    n.updated_at
FROM progressor.namespaces AS n
WHERE n.name = %(name)s::text
