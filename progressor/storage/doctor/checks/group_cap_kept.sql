-- Of a group no more tasks run than its limit, and each is of a process of that group. After a limit was
-- lowered, what ran before is found until it ends.
-- Reads: running.
SELECT
    n.name AS namespace, p.process_id, r.task_id,
    CASE
        WHEN r.group_no IS DISTINCT FROM p.group_no THEN 'it does not run in the group of its process'
        ELSE format('it is one more than the %%s of group %%s', r.most, g.group_key)
    END AS found
FROM (
    SELECT
        r.process_no, r.task_id, r.group_no, own.most,
        row_number() OVER (PARTITION BY r.group_no ORDER BY r.running_time, r.task_id) AS place
    FROM progressor.running AS r
    LEFT JOIN LATERAL (
        SELECT coalesce(g.group_limit, (n.options ->> 'group_limit')::bigint) AS most
        FROM progressor.groups AS g
        JOIN progressor.namespaces AS n ON n.namespace_no = g.namespace_no
        WHERE g.group_no = r.group_no
    ) AS own ON TRUE
) AS r
JOIN progressor.processes AS p ON p.process_no = r.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.groups AS g ON g.group_no = r.group_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND (r.group_no IS DISTINCT FROM p.group_no OR r.group_no IS NOT NULL AND r.place > r.most)
