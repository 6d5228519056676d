-- Delete workers that died without leaving, once none of their tasks runs. Judged as zombies are: as of the
-- collector's own last renewal, and from when writes began to get through.
DELETE FROM progressor.workers AS w
USING (
    SELECT d.worker_id
    FROM progressor.workers AS d
    WHERE
        greatest(d.seen_at, %(since)s::timestamptz)
        < %(at)s::timestamptz - 10 * greatest(d.lease_age, %(lease_age)s::interval)
    FOR UPDATE OF d SKIP LOCKED
) AS d
WHERE
    w.worker_id = d.worker_id
    AND NOT EXISTS (
        SELECT FROM progressor.running AS r WHERE r.worker_id = ANY (ARRAY[w.worker_id])
    )
