-- The order time of the most urgent of the first requests in the mailbox of `s`: as urgent is the one that
-- goes before it. Bounded, as a mailbox may have any depth.
(
    SELECT min(coalesce(w.order_time, w.scheduled_time))
    FROM (
        SELECT w.order_time, w.scheduled_time
        FROM progressor.schedule AS w
        WHERE w.process_no = s.process_no AND w.task_type IN ('init', 'call', 'notify', 'repair')
        ORDER BY w.task_id
        LIMIT 100
    ) AS w
)
