-- sweep, last: where the walk goes on and when, or that it has ended, and what it has deleted so far.
UPDATE progressor.retention AS r
SET
    began_at = %(began_at)s::timestamptz,
    ended_at = CASE WHEN %(is_over)s::boolean THEN %(now)s::timestamptz ELSE r.ended_at END,
    cursor_at = %(cursor_at)s::timestamptz,
    cursor_no = %(cursor_no)s::bigint,
    cursor_task = %(cursor_task)s::bigint,
    tasks_deleted = %(tasks_deleted)s::bigint,
    events_deleted = %(events_deleted)s::bigint,
    passed_by = CASE WHEN %(is_first)s::boolean THEN 0 ELSE r.passed_by END + %(passed_by)s::bigint,
    next_at = %(next_at)s::timestamptz
WHERE r.namespace_no = %(namespace_no)s::bigint
