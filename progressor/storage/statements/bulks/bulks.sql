-- One bulk, or the newest ones of the namespaces that these LIKE patterns fit.
SELECT
    b.bulk_id, b.created_at, b.namespace, b.detail_like, b.handler, b.simple, b.pace, b.status, b.ended_at,
    b.looked_at, b.passed_by, b.begun, b.repaired, b.refused, b.failed, b.removed, b.redo, b.redone, b.last_error,
    b.until_task, b.cursor_at, b.cursor_no, b.at_end, b.idempotency_key
FROM progressor.bulks AS b
WHERE
    -- A range of the primary key, so that a single bulk is found by it.
    b.bulk_id >= coalesce(%(bulk_id)s::bigint, 0)
    AND b.bulk_id <= coalesce(%(bulk_id)s::bigint, 9223372036854775807)
    -- Applied before the limit, or bulks of other namespaces would take the places of the wanted ones.
    AND (%(namespaces)s::text[] IS NULL OR b.namespace LIKE ANY (%(namespaces)s::text[]))
ORDER BY b.bulk_id DESC
LIMIT %(limit)s::bigint
