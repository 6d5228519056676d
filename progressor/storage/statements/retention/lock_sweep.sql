-- sweep, third, or first into an archive: lock the walk that is due first until this transaction ends; skip one that another runner
-- holds. What is deleted again after a crash was deleted for the same reason, so no commit waits for a disk
-- or a standby while it holds processes.
SELECT
    r.namespace_no, n.name AS namespace, r.cursor_at, r.cursor_no, r.cursor_task,
    r.tasks_deleted, r.events_deleted, k.is_set, k.tasks, k.keys, k.events_for, k.events_last, k.archive, k.said,
    -- NULL if the last walk has ended: this round begins one.
    CASE WHEN r.ended_at >= r.began_at THEN NULL ELSE r.began_at END AS began_at,
    coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
    set_config('synchronous_commit', 'off', TRUE) AS synchronous_commit
FROM progressor.retention AS r
INNER JOIN progressor.namespaces AS n ON n.namespace_no = r.namespace_no
CROSS JOIN LATERAL (
    -- include kept_for
) AS k
WHERE
    r.next_at <= coalesce(%(now)s::timestamptz, now())
    AND k.archive = %(archive)s::boolean
    AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
ORDER BY r.next_at
LIMIT 1
FOR NO KEY UPDATE OF r SKIP LOCKED
