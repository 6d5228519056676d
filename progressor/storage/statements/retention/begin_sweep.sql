-- Let a walk begin now, from the first process. One that is under way begins anew.
INSERT INTO progressor.retention AS r (namespace_no, next_at)
SELECT n.namespace_no, coalesce(%(now)s::timestamptz, now())
FROM progressor.namespaces AS n
WHERE n.name = %(namespace)s::text
ON CONFLICT (namespace_no) DO UPDATE
SET next_at = excluded.next_at, began_at = NULL, cursor_at = NULL, cursor_no = 0, cursor_task = 0
RETURNING r.namespace_no
