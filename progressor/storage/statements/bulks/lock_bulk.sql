-- run_bulk, first: lock a bulk that is due until this transaction ends, however it ends; skip one that
-- another runner holds. This comes before any lock of a process: no session that holds a process waits for
-- a bulk.
SELECT
    b.bulk_id, b.created_at, b.namespace, b.detail_like, b.handler, b.simple, b.pace, b.status, b.ended_at,
    b.looked_at, b.passed_by, b.begun, b.repaired, b.refused, b.failed, b.removed, b.redo, b.redone, b.last_error,
    b.until_task, b.cursor_at, b.cursor_no, b.at_end, b.args, b.request_hash, b.paced_at, b.next_at,
    b.still_since, coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
FROM progressor.bulks AS b
WHERE b.ended_at IS NULL AND b.next_at <= coalesce(%(now)s::timestamptz, now())
ORDER BY b.next_at, b.bulk_id
LIMIT 1
FOR NO KEY UPDATE OF b SKIP LOCKED
