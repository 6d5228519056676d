-- The last statement of both repairs: what became of each item, read from the tables, so that an
-- operation repeated after a lost answer finds its own earlier success. A task whose running row
-- carries the item's lease is the item's own to run; any other task of the same key is a duplicate.
SELECT
    -- Nothing, if it was started after the lock had looked for it.
    CASE
        WHEN i.ord <> ALL (
            coalesce(nullif(current_setting('progressor.missing', TRUE), ''), '{}')::bigint[]
        )
            THEN p.status
    END AS status,
    p.previous_status,
    p.status_changed_at,
    p.created_at,
    p.detail,
    CASE WHEN r.lease IS NOT NULL THEN p.aux_state END AS aux_state,
    p.metadata AS process_metadata,
    p.corrupted_by,
    p.last_event_id,
    t.task_id,
    t.task_type,
    t.status AS task_status,
    t.request_hash,
    t.response,
    t.error,
    t.scheduled_time,
    r.running_time,
    r.lease IS NOT NULL AS runs,
    t.lease = i.lease AS own
FROM unnest(
    %(namespace)s::text[], %(process_id)s::text[], %(idempotency_key)s::text[], %(lease)s::bigint[]
) WITH ORDINALITY AS i (namespace, process_id, idempotency_key, lease, ord)
LEFT JOIN processes AS p ON p.namespace = ANY (ARRAY[i.namespace])
AND p.process_id = ANY (ARRAY[i.process_id])
LEFT JOIN tasks AS t
    ON
        t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND t.idempotency_key = i.idempotency_key
LEFT JOIN running AS r
    ON
        r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
        AND r.task_id = t.task_id AND r.lease = i.lease
ORDER BY i.ord
