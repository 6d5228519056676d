-- import, first: new numbers for its tasks, in their order.
SELECT nextval('progressor.tasks_task_id_seq') AS task_id
FROM generate_series(1, %(many)s::bigint)
