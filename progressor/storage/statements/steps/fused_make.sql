-- Starts that are run and saved in one transaction, before their handlers: make the processes that do not
-- exist, in the order of their names, as prepare_init does. Their init tasks are written with their
-- results. Starts whose process exists, whose key has an answer from an earlier life, or whose namespace is
-- paused have no row here: they are prepared.
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        n.namespace_no,
        nextval('progressor.processes_process_no_seq') AS process_no,
        nextval('progressor.tasks_task_id_seq') AS task_id,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(process_metadata)s::jsonb[], %(idempotency_key)s::text[],
        %(lease)s::bigint[]
    ) WITH ORDINALITY AS i (namespace, process_id, metadata, idempotency_key, lease, ord)
    CROSS JOIN LATERAL (
        SELECT n.namespace_no
        FROM progressor.namespaces AS n
        WHERE n.name = i.namespace AND NOT n.paused
        OFFSET 0
    ) AS n
    WHERE
        -- include no_earlier_answer
),

process AS (
    -- include new_processes
)

SELECT
    item.ord,
    item.process_no,
    item.task_id,
    item.now
FROM item
WHERE item.process_no = ANY (ARRAY(SELECT process.process_no FROM process))
ORDER BY item.ord
