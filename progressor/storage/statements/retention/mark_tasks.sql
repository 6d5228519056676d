-- sweep, second: note once an hour a number as tasks draw them. What has a higher one is younger than this
-- moment, so a sweep need not look at it. The sequence itself may be read by its owner alone.
INSERT INTO progressor.task_marks (marked_at, task_id)
SELECT i.now, nextval('progressor.tasks_task_id_seq'::regclass)
FROM (SELECT coalesce(%(now)s::timestamptz, now()) AS now OFFSET 0) AS i
WHERE
    EXISTS (SELECT FROM progressor.retention)
    AND NOT EXISTS (
        SELECT FROM progressor.task_marks AS m WHERE m.marked_at > i.now - interval '1 hour'
    )
ON CONFLICT DO NOTHING
