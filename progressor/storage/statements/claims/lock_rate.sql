-- A claim in a namespace with a rate, second: lock its row. Only other claims lock it, none of which waits for
-- anything but the row of a group meanwhile.
SELECT r.namespace_no
FROM progressor.rates AS r
WHERE
    r.namespace_no = (
        SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
    )
FOR NO KEY UPDATE OF r
