-- stop_bulk, by number and key, because another server may have handed out the number again. A runner holds
-- the row for a whole round, so from the commit on no more repairs begin. The number under way is read from
-- the row itself, which is newer than the snapshot if this had to wait.
UPDATE progressor.bulks AS b
SET
    status = CASE
        WHEN b.begun > b.repaired + b.refused + b.failed + b.removed THEN 'stopping' ELSE 'stopped'
    END,
    ended_at = CASE
        WHEN b.begun > b.repaired + b.refused + b.failed + b.removed THEN NULL
        ELSE coalesce(%(now)s::timestamptz, clock_timestamp())
    END,
    -- Repairs under way may have ended by now: the next round counts them.
    next_at = least(b.next_at, coalesce(%(now)s::timestamptz, clock_timestamp()))
WHERE
    b.bulk_id = %(bulk_id)s::bigint AND b.idempotency_key = %(idempotency_key)s::text AND b.status = 'running'
RETURNING b.namespace
