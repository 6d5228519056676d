-- prepare_init, for requests that made no process: the contents of the tables for their names and keys, so
-- that an operation repeated after a lost answer finds its own earlier success. A task whose running row
-- has the item's lease is the item's own to run; any other task of the same key is a duplicate.
SELECT
    n.namespace_no IS NOT NULL AS is_served,
    p.status,
    p.previous_status,
    p.status_changed_at,
    p.created_at,
    p.detail,
    CASE WHEN r.lease IS NOT NULL THEN p.aux_state END AS aux_state,
    p.metadata,
    p.corrupted_by,
    p.last_event_id,
    t.birth,
    t.process_no,
    t.task_id,
    t.status AS task_status,
    t.request_hash,
    t.response,
    t.error,
    t.scheduled_time,
    r.running_time,
    NULL AS timer_type,
    NULL AS timer_due,
    r.lease IS NOT NULL AS runs,
    t.lease = i.lease AS own,
    t.reply_to
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
    SELECT t.*, p.birth
    FROM progressor.tasks AS t
    WHERE t.process_no + 0 = p.process_no AND t.idempotency_key = i.idempotency_key
    UNION ALL
    SELECT t.*, r.birth
    FROM (
        SELECT r.process_no, r.birth
        FROM progressor.removed_processes AS r
        WHERE r.namespace = i.namespace AND r.process_id = i.process_id AND NOT r.by_key
        UNION ALL
        SELECT k.process_no, k.birth
        FROM progressor.kept_answers AS k
        WHERE
            k.namespace = i.namespace AND k.process_id = i.process_id
            AND k.idempotency_key = i.idempotency_key
    ) AS r
    CROSS JOIN LATERAL (
        SELECT t.*
        FROM progressor.tasks AS t
        WHERE t.process_no + 0 = r.process_no AND t.idempotency_key = i.idempotency_key
        OFFSET 0
    ) AS t
    LIMIT 1
) AS t ON TRUE
LEFT JOIN LATERAL (
    SELECT r.lease, r.running_time
    FROM progressor.running AS r
    WHERE r.process_no = t.process_no AND r.task_id = t.task_id AND r.lease = i.lease
    OFFSET 0
) AS r ON TRUE
ORDER BY i.ord
