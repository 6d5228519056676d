-- The process of `i` is idle, nothing waits on it, and the key is new.
NOT EXISTS (
    SELECT FROM progressor.running AS r WHERE r.process_no = i.process_no OFFSET 0
)
AND NOT EXISTS (
    SELECT FROM progressor.schedule AS s
    WHERE s.process_no = i.process_no AND s.task_type IN ('init', 'call', 'notify', 'repair')
    OFFSET 0
)
AND NOT EXISTS (
    SELECT FROM progressor.tasks AS t
    WHERE t.process_no + 0 = i.process_no AND t.idempotency_key = i.idempotency_key
    OFFSET 0
)
AND
    -- include no_earlier_answer
