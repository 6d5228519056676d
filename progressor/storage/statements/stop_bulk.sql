-- stop_bulk: by its number and its key, for another server may have handed out the number again. Whoever runs it holds the row for a whole round, so from the commit on nothing more is begun.
-- How many are under way the row itself says: a newer one than the snapshot's, if this had to wait.
UPDATE progressor.bulks AS b
SET
    status = CASE
        WHEN b.begun > b.repaired + b.refused + b.failed + b.removed THEN 'stopping' ELSE 'stopped'
    END,
    ended_at = CASE
        WHEN b.begun > b.repaired + b.refused + b.failed + b.removed THEN NULL
        ELSE coalesce(%(now)s::timestamptz, clock_timestamp())
    END,
    -- What is under way may have ended by now: the next round sees it.
    next_at = least(b.next_at, coalesce(%(now)s::timestamptz, clock_timestamp()))
WHERE
    b.bulk_id = %(bulk_id)s::bigint AND b.idempotency_key = %(idempotency_key)s::text AND b.status = 'running'
