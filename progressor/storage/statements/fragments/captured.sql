captured AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT
        process_no, task_id, task_type, %(worker_id)s::bigint, %(lease)s::bigint, running_time
    FROM due
),
