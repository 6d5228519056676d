-- import, second: make the groups that are new, in the order of their keys.
INSERT INTO progressor.groups (namespace_no, group_key)
SELECT DISTINCT n.namespace_no, i.group_key
FROM unnest(%(namespace)s::text[], %(group_key)s::text[]) AS i (namespace, group_key)
CROSS JOIN LATERAL (
    SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
) AS n
WHERE
    i.group_key IS NOT NULL
    AND NOT EXISTS (
        SELECT FROM progressor.groups AS g
        WHERE g.namespace_no = n.namespace_no AND g.group_key = i.group_key
        OFFSET 0
    )
ORDER BY n.namespace_no, i.group_key
ON CONFLICT DO NOTHING
