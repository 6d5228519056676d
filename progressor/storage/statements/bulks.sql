-- One bulk, or the newest ones.
SELECT
    b.bulk_id, b.created_at, b.namespace, b.detail_like, b.handler, b.simple, b.pace, b.status, b.ended_at,
    b.looked_at, b.passed_by, b.begun, b.repaired, b.refused, b.failed, b.removed, b.last_error,
    b.until_task, b.cursor_at, b.cursor_no, b.at_end
FROM progressor.bulks AS b
WHERE %(bulk_id)s::bigint IS NULL OR b.bulk_id = %(bulk_id)s::bigint
ORDER BY b.bulk_id DESC
LIMIT %(limit)s::bigint
