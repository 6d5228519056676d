-- The outcomes of tasks that callers wait for, in their order, as many as fit into `bytes`, and one at
-- least. A row is that task if its key and hash, and its process's birth, are the same: another server may
-- have handed out the numbers again. For a task without a row, `gone` says what is known.
SELECT a.status, a.response, a.error, a.gone
FROM (
    SELECT
        i.ord, t.status, t.response, t.error,
        CASE
            WHEN t.status IS NOT NULL THEN NULL
            WHEN life.is_removed THEN 'removed'
            WHEN i.task_id <= life.swept_until THEN 'swept'
            WHEN NOT life.is_removed THEN 'lost'
            ELSE 'unknown'
        END AS gone,
        sum(octet_length(t.response))
        OVER (ORDER BY i.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(birth)s::bigint[],
        %(idempotency_key)s::text[], %(request_hash)s::bytea[]
    ) WITH ORDINALITY AS i (process_no, task_id, birth, idempotency_key, request_hash, ord)
    LEFT JOIN LATERAL (
        SELECT FALSE AS is_removed, p.swept_until
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no AND p.birth IS NOT DISTINCT FROM i.birth
        UNION ALL
        SELECT TRUE, NULL
        FROM progressor.removed_processes AS r
        -- NULL if an older release removed it, without its birth.
        WHERE r.process_no = i.process_no AND coalesce(r.birth, i.birth) IS NOT DISTINCT FROM i.birth
        LIMIT 1
    ) AS life ON TRUE
    LEFT JOIN LATERAL (
        SELECT t.status, t.response, t.error
        FROM progressor.tasks AS t
        WHERE
            t.process_no = i.process_no AND t.task_id = i.task_id
            AND t.idempotency_key IS NOT DISTINCT FROM i.idempotency_key
            AND t.request_hash IS NOT DISTINCT FROM i.request_hash
            -- A request that waited on a removed process ended with it, even if its row is still there.
            AND (life.is_removed IS FALSE OR life.is_removed AND t.finished_time IS NOT NULL)
        OFFSET 0
    ) AS t ON TRUE
) AS a
WHERE coalesce(a.bytes_before, 0) < %(bytes)s::bigint
ORDER BY a.ord
