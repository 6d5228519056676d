-- make_bulk, last: the bulk of this key, made just now or by an earlier try; a different hash means another
-- request.
SELECT
    b.bulk_id, b.created_at, b.namespace, b.detail_like, b.handler, b.simple, b.pace, b.status, b.ended_at,
    b.looked_at, b.passed_by, b.begun, b.repaired, b.refused, b.failed, b.removed, b.redo, b.redone, b.last_error, b.bulk_hash
FROM progressor.bulks AS b
WHERE b.idempotency_key = %(idempotency_key)s::text
