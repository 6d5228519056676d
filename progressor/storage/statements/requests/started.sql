-- prepare_init, for requests that made no process: the contents of the tables for their names and keys, so
-- that an operation repeated after a lost answer finds its own earlier success. A task whose running row
-- has the item's lease is the item's own to run; any other task of the same key is a duplicate.
SELECT
    -- include request_outcome
    NULL AS timer_type,
    NULL AS timer_due,
    NULL AS named_timers,
    n.namespace_no IS NOT NULL AS is_served
FROM unnest(
    %(namespace)s::text[], %(process_id)s::text[], %(idempotency_key)s::text[], %(lease)s::bigint[]
) WITH ORDINALITY AS i (namespace, process_id, idempotency_key, lease, ord)
LEFT JOIN LATERAL (
    SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
) AS n ON TRUE
LEFT JOIN LATERAL (
    SELECT p.*
    FROM progressor.processes AS p
    WHERE p.namespace_no = n.namespace_no AND p.process_id = i.process_id
    OFFSET 0
) AS p ON TRUE
LEFT JOIN LATERAL (
    SELECT
        p.birth,
        -- include answer_columns
    FROM progressor.tasks AS t
    WHERE t.process_no + 0 = p.process_no AND t.idempotency_key = i.idempotency_key
    UNION ALL
    SELECT
        r.birth,
        -- include answer_columns
    FROM
        -- include task_of_earlier_life
    LIMIT 1
) AS t ON TRUE
-- include own_running
ORDER BY i.ord
