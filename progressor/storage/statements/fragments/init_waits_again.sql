UPDATE progressor.tasks AS t
SET
    status = 'waiting', scheduled_time = i.now, running_time = NULL, finished_time = NULL,
    worker_id = NULL, attempts_count = coalesce(t.attempts_count, 0) + 1, zombie_count = NULL
FROM item AS i
WHERE
    t.ctid = (
        SELECT o.ctid FROM progressor.tasks AS o
        WHERE o.process_no = i.process_no AND o.task_id = i.init_id
    )
RETURNING t.process_no, t.priority
