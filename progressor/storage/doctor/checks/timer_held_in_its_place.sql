-- A process that a timer broke holds another one in its place, with the same name, type, due time and rule.
-- Reads: broken processes, schedule.
SELECT
    n.name AS namespace, p.process_id, p.corrupted_by AS task_id,
    CASE
        WHEN s.task_id IS NULL THEN format('no timer is held in the place of this %%s', t.task_type)
        WHEN (t.task_type, t.scheduled_time) <> (s.task_type, s.scheduled_time)
            THEN format('a %%s due at %%s is held in the place of this one', s.task_type, s.scheduled_time)
        ELSE 'the timer that is held in its place recurs by another rule, or not at all'
    END AS found
FROM progressor.processes AS p
JOIN progressor.tasks AS t
    ON t.process_no = p.process_no AND t.task_id = p.corrupted_by AND t.task_type IN ('timeout', 'remove')
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.schedule AS s
    ON s.process_no + 0 = p.process_no AND s.timer = coalesce(t.name, '')
    AND s.task_type IN ('timeout', 'remove')
LEFT JOIN progressor.tasks AS h ON h.process_no = s.process_no AND h.task_id = s.task_id
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND p.detail IS NOT NULL
    AND p.status = 'error'
    AND (
        (t.task_type, t.scheduled_time) IS DISTINCT FROM (s.task_type, s.scheduled_time)
        -- The held one is run however late.
        OR replace(encode(t.args, 'escape'), '"begun":false', '"begun":true')
        IS DISTINCT FROM encode(h.args, 'escape')
    )
