-- Tasks of a namespace on a sample of pages: how many, and how many would be deleted.
SELECT
    count(*) AS tasks,
    count(*) FILTER (WHERE t.is_old) AS old_tasks,
    coalesce(sum(t.bytes) FILTER (WHERE t.is_old), 0)::bigint AS old_task_bytes
FROM (
    SELECT
        pg_column_size(t.*)::bigint AS bytes,
        coalesce(
            (
                -- include has_expired
            ),
            FALSE
        ) AS is_old
    FROM progressor.tasks AS t TABLESAMPLE SYSTEM (%(millionths)s::bigint / 10000.0)
    INNER JOIN progressor.processes AS p ON p.process_no = t.process_no
    INNER JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
    WHERE n.name = %(namespace)s::text
) AS t
