LEFT JOIN LATERAL (
    SELECT r.lease, r.running_time
    FROM progressor.running AS r
    WHERE r.process_no = t.process_no AND r.task_id = t.task_id AND r.lease = i.lease
    OFFSET 0
) AS r ON TRUE
