-- The number of steps that run in each namespace: reads no more rows than all workers have slots, and those
-- that a collector will take.
SELECT
    (SELECT n.name FROM progressor.namespaces AS n WHERE n.namespace_no = p.namespace_no) AS name,
    count(*) AS steps
FROM progressor.running AS r
CROSS JOIN LATERAL (
    SELECT p.namespace_no FROM progressor.processes AS p WHERE p.process_no = r.process_no OFFSET 0
) AS p
GROUP BY p.namespace_no
