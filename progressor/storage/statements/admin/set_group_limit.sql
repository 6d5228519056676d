-- Give a group a limit of its own, or that of its namespace again. A claim that holds its lock is over soon.
INSERT INTO progressor.groups (namespace_no, group_key, group_limit)
SELECT n.namespace_no, %(group_key)s::text, %(group_limit)s::bigint
FROM progressor.namespaces AS n
WHERE n.name = %(namespace)s::text
ON CONFLICT (namespace_no, group_key) DO UPDATE SET group_limit = excluded.group_limit
RETURNING group_no
