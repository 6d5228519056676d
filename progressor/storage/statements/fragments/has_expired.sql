-- A condition: the task `t` ended long enough ago, and nothing of process `p` points to it. What broke a
-- process is needed to repair it, and a message until it is delivered has its step.
t.finished_time < %(tasks_before)s::timestamptz
AND (t.idempotency_key IS NULL OR t.finished_time < %(keys_before)s::timestamptz)
AND t.task_id IS DISTINCT FROM p.corrupted_by
AND NOT EXISTS (
    SELECT FROM progressor.outbox AS o WHERE o.process_no = t.process_no AND o.task_id = t.task_id OFFSET 0
)
