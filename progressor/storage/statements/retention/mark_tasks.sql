-- sweep, first: note once an hour which number was the last that a task had drawn. What has a higher one is
-- younger than this moment, so a sweep need not look at it.
INSERT INTO progressor.task_marks (marked_at, task_id)
SELECT i.now, s.last_value
FROM (SELECT coalesce(%(now)s::timestamptz, now()) AS now OFFSET 0) AS i, progressor.tasks_task_id_seq AS s
WHERE
    EXISTS (SELECT FROM progressor.retention)
    AND NOT EXISTS (
        SELECT FROM progressor.task_marks AS m WHERE m.marked_at > i.now - interval '1 hour'
    )
ON CONFLICT DO NOTHING
