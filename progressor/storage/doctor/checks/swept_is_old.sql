-- A retention has deleted no task of the last hour, for which the shortest one keeps all, and none that never was.
-- Reads: all processes, task_marks.
-- A task that is younger than a mark has a higher number. What a longer retention should have kept cannot be known:
-- it may have been a shorter one then.
SELECT
    n.name AS namespace, p.process_id, NULL::bigint AS task_id,
    format('tasks up to %%s may be deleted, the newest old one is before %%s', p.swept_until, m.task_id) AS found
FROM progressor.processes AS p
CROSS JOIN (
    SELECT
        coalesce(
            (
                SELECT m.task_id
                FROM progressor.task_marks AS m
                WHERE
                    m.marked_at >= coalesce(%(now)s::timestamptz, now()) - interval '1 hour'
                    AND m.marked_at <= coalesce(%(now)s::timestamptz, now())
                ORDER BY m.marked_at
                LIMIT 1
            ),
            (SELECT max(m.task_id) FROM progressor.task_marks AS m),
            0
        ) AS task_id
) AS m
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND p.swept_until > m.task_id
