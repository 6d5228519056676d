-- put, repeated after a lost answer: was it this import that took the id?
SELECT t.task_id
FROM tasks AS t
WHERE
    t.namespace = %(namespace)s::text AND t.process_id = %(process_id)s::text
    AND t.idempotency_key = %(idempotency_key)s::text
