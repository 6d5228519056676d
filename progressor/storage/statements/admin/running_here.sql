-- The tasks that run in the hands of one worker, after a fail-over. It reads all that runs, on any worker: it is
-- rare, and an index would cost every claim.
SELECT n.name AS namespace, p.process_id, r.process_no, r.task_id, r.lease
FROM progressor.running AS r
CROSS JOIN LATERAL (
    SELECT p.process_id, p.namespace_no FROM progressor.processes AS p WHERE p.process_no = r.process_no OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT n.name FROM progressor.namespaces AS n WHERE n.namespace_no = p.namespace_no OFFSET 0
) AS n
WHERE r.worker_id = %(worker_id)s::bigint
