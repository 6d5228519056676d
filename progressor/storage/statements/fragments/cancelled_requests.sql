UPDATE progressor.tasks AS t
SET
    status = 'cancelled',
    finished_time = coalesce(%(now)s::timestamptz, now()),
    error = gone.detail
FROM gone
WHERE t.process_no = ANY (ARRAY[gone.process_no]) AND t.task_id = gone.task_id
