-- cancel_stranded, first: of the next broken processes, in the order of their index, those on which
-- requests still wait, because they were more than the break could cancel; and the last process that was
-- looked at.
WITH looked AS MATERIALIZED (
    SELECT p.namespace_no, p.created_at, p.process_no
    FROM progressor.processes AS p
    WHERE
        p.detail IS NOT NULL
        AND (p.namespace_no, p.created_at, p.process_no)
        > (%(namespace_no)s::bigint, %(created_at)s::timestamptz, %(process_no)s::bigint)
    ORDER BY p.namespace_no, p.created_at, p.process_no
    LIMIT %(looks)s::bigint
)

SELECT l.namespace_no, l.created_at, l.process_no, n.name AS namespace, w.waits
FROM (
    SELECT l.*, row_number() OVER (ORDER BY l.namespace_no DESC, l.created_at DESC, l.process_no DESC) AS place
    FROM looked AS l
) AS l
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM progressor.schedule AS s
        WHERE s.process_no = l.process_no AND s.task_type IN ('init', 'call', 'notify')
        OFFSET 0
    ) AS waits
) AS w
LEFT JOIN LATERAL (
    SELECT n.name FROM progressor.namespaces AS n WHERE n.namespace_no = l.namespace_no OFFSET 0
) AS n ON TRUE
WHERE w.waits OR l.place = 1
ORDER BY l.place DESC
