-- The fence.
CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.task_type
    FROM progressor.running AS r
    WHERE
        r.process_no = i.process_no AND r.task_id = i.task_id AND r.lease = i.lease
        -- Not "=", so that the planner looks the row up by its key, not by its worker.
        AND r.worker_id IS NOT DISTINCT FROM i.worker_id
    OFFSET 0
) AS r
