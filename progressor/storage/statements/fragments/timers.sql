-- The timers that wait on the process of `i`: the one without a name as two columns, for most processes have
-- no other one; those with names as one.
LEFT JOIN LATERAL (
    SELECT s.task_type AS timer_type, s.scheduled_time AS timer_due
    FROM progressor.schedule AS s
    WHERE s.process_no + 0 = i.process_no AND s.timer = '' AND s.task_type IN ('timeout', 'remove')
    OFFSET 0
) AS timer ON TRUE
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(s.timer, s.task_type, s.scheduled_time)) AS named_timers
    FROM progressor.schedule AS s
    WHERE s.process_no + 0 = i.process_no AND s.timer > '' AND s.task_type IN ('timeout', 'remove')
) AS named ON TRUE
