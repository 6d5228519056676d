-- All processes with a heartbeat: workers, collectors, and those that fell silent and were not dropped yet.
SELECT
    w.worker_id,
    w.host,
    w.namespaces,
    w.free_slots,
    w.lease_age,
    w.started_at,
    w.seen_at,
    greatest(now() - w.seen_at, interval '0') AS silent_for
FROM progressor.workers AS w
ORDER BY w.host, w.started_at, w.worker_id
