-- The last statement of both repairs: the outcome of each item, read from the tables, so that an operation
-- repeated after a lost answer finds its own earlier success. A task whose running row has the item's lease
-- is the item's own to run; any other task of the same key is a duplicate.
SELECT
    -- include request_outcome
    timer.timer_type,
    timer.timer_due,
    named.named_timers,
    p.status = 'error' AND EXISTS (
        SELECT FROM progressor.schedule AS s
        WHERE s.process_no = i.process_no AND s.task_type IN ('init', 'call', 'notify')
        OFFSET 0
    ) AS is_stranded
FROM (
    SELECT i.*, ((SELECT current_setting('prg.locked')::bigint[]))[i.ord] AS process_no
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(idempotency_key)s::text[], %(lease)s::bigint[]
    ) WITH ORDINALITY AS i (namespace, process_id, idempotency_key, lease, ord)
) AS i
LEFT JOIN LATERAL (
    SELECT p.* FROM progressor.processes AS p WHERE p.process_no = i.process_no OFFSET 0
) AS p ON TRUE
LEFT JOIN LATERAL (
    SELECT
        p.birth,
        -- include answer_columns
    FROM progressor.tasks AS t
    WHERE t.process_no + 0 = i.process_no AND t.idempotency_key = i.idempotency_key
    UNION ALL
    SELECT
        r.birth,
        -- include answer_columns
    FROM
        -- include task_of_earlier_life
    LIMIT 1
) AS t ON TRUE
-- include own_running
-- include timers
ORDER BY i.ord
