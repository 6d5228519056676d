-- sweep into an archive, fifth: lock a walk, if it still stands where this sweeper has left it. Nothing that was
-- deleted again after a crash is missing in the archive, so no commit waits for a disk.
SELECT
    r.tasks_deleted, r.events_deleted,
    set_config('synchronous_commit', 'off', TRUE) AS synchronous_commit
FROM progressor.retention AS r
WHERE
    r.namespace_no = %(namespace_no)s::bigint
    AND r.began_at IS NOT DISTINCT FROM %(began_at)s::timestamptz
    AND r.cursor_at IS NOT DISTINCT FROM %(cursor_at)s::timestamptz
    AND r.cursor_no = %(cursor_no)s::bigint AND r.cursor_task = %(cursor_task)s::bigint
FOR NO KEY UPDATE OF r
