-- prepare_init, first: insert the processes that do not exist, in key order (two inserters of the same
-- ids wait for each other one way only). An inserted row is a locked row. A key that has an answer from
-- an earlier life of the process starts nothing; should that life end between this statement and the
-- next, the unique key of tasks stops the transaction and it is repeated.
INSERT INTO processes (namespace, process_id, status, status_changed_at, created_at, metadata)
SELECT i.namespace, i.process_id, 'init', at.now, at.now, i.process_metadata
FROM unnest(
    %(namespace)s::text[], %(process_id)s::text[], %(process_metadata)s::jsonb[],
    %(idempotency_key)s::text[]
) AS i (namespace, process_id, process_metadata, idempotency_key),
    (SELECT coalesce(%(now)s::timestamptz, now()) AS now) AS at
WHERE
    NOT EXISTS (
        SELECT FROM tasks AS t
        WHERE
            t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
            AND t.idempotency_key = i.idempotency_key
    )
ORDER BY i.namespace COLLATE "C", i.process_id COLLATE "C"
ON CONFLICT DO NOTHING
