-- enter_group, first: make the groups that are new. Two at once of the same key wait for each other.
INSERT INTO progressor.groups (namespace_no, group_key)
SELECT n.namespace_no, %(group_key)s::text
FROM progressor.namespaces AS n
WHERE
    n.name = %(namespace)s::text
    -- Or a number would be used for each try.
    AND NOT EXISTS (
        SELECT FROM progressor.groups AS g
        WHERE g.namespace_no = n.namespace_no AND g.group_key = %(group_key)s::text
        OFFSET 0
    )
ON CONFLICT DO NOTHING
