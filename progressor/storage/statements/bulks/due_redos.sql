-- run_bulk, behind its lock: the requests to run again, of up to `room` processes that the bulk has repaired.
-- Each stands here until a round has tried it.
SELECT
    r.process_no, r.redo_task_id, p.process_id, p.birth, t.task_type, t.name, t.idempotency_key, t.request_hash
FROM progressor.bulk_repairs AS r
CROSS JOIN LATERAL (
    SELECT
    FROM progressor.tasks AS t
    WHERE t.process_no = r.process_no AND t.task_id = r.task_id AND t.status = 'finished'
    OFFSET 0
) AS its
CROSS JOIN LATERAL (
    SELECT p.process_id, p.birth FROM progressor.processes AS p WHERE p.process_no = r.process_no OFFSET 0
) AS p
LEFT JOIN LATERAL (
    SELECT t.task_type, t.name, t.idempotency_key, t.request_hash
    FROM progressor.tasks AS t
    WHERE t.process_no = r.process_no AND t.task_id = r.redo_task_id
    OFFSET 0
) AS t ON TRUE
WHERE r.bulk_id = %(bulk_id)s::bigint AND r.redo_task_id IS NOT NULL
ORDER BY r.process_no
LIMIT %(room)s::bigint
