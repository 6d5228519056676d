-- A request runs before those that were accepted later.
-- Reads: schedule, running.
SELECT
    s.namespace, s.process_id, s.task_id,
    format('it waits, while task %%s, accepted later, runs', r.task_id) AS found
FROM running AS r
JOIN schedule AS s ON s.namespace = r.namespace AND s.process_id = r.process_id
WHERE
    (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s::text)
    AND s.task_id < r.task_id
    AND r.task_type NOT IN ('timeout', 'remove') AND s.task_type NOT IN ('timeout', 'remove')
