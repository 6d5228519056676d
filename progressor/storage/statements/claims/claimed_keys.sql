-- After a claim that cannot be read as a whole: the keys of its tasks, which are then read one by one.
-- Reads as `claimed` does.
SELECT r.process_no, r.task_id
FROM progressor.running AS r
WHERE r.worker_id = %(worker_id)s::bigint AND r.lease = %(lease)s::bigint
ORDER BY r.task_id
