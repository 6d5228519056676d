-- Workers that died without leaving, once nothing of theirs runs.
DELETE FROM progressor.workers AS w
WHERE
    greatest(w.seen_at, pg_postmaster_start_time())
    < coalesce(%(now)s::timestamptz, now()) - 10 * %(lease_age)s::interval
    AND NOT EXISTS (
        SELECT FROM progressor.running AS r WHERE r.worker_id = ANY (ARRAY[w.worker_id])
    )
