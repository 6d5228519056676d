-- After a request whose outcome was committed and cannot be read: the task that it made, if it made one.
SELECT t.process_no, t.task_id
FROM progressor.tasks AS t
WHERE
    t.process_no + 0 = %(process_no)s::bigint AND t.idempotency_key = %(idempotency_key)s::text
    AND t.lease = %(lease)s::bigint
