-- Keep what has ended for these times, whatever the code of the namespace says; or as its code says again. A
-- walk begins at once, from the first process. A round that holds the row is over soon.
INSERT INTO progressor.retention AS r (
    namespace_no, is_set, tasks, keys, events_for, events_last, archive, next_at
)
SELECT
    n.namespace_no, %(is_set)s::boolean, %(tasks)s::interval, %(keys)s::interval,
    %(events_for)s::interval, %(events_last)s::bigint,
    %(archive)s::boolean, coalesce(%(now)s::timestamptz, now())
FROM progressor.namespaces AS n
WHERE n.name = %(namespace)s::text
ON CONFLICT (namespace_no) DO UPDATE
SET
    is_set = excluded.is_set, tasks = excluded.tasks, keys = excluded.keys,
    events_for = excluded.events_for, events_last = excluded.events_last, archive = excluded.archive,
    next_at = excluded.next_at,
    began_at = NULL, cursor_at = NULL, cursor_no = 0, cursor_task = 0
RETURNING r.namespace_no
