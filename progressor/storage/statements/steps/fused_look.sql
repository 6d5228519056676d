-- Calls that are run and saved in one transaction, after the lock and before their handlers: return those
-- that may run now, with their processes. Nothing of them is written yet. A call may run if its process is
-- idle, of no group and does not rest after its last step, its key is new, nothing waits before it in the mailbox, and its
-- namespace is not paused. Other calls have no row here: they are prepared. Task ids are drawn under the lock, as everywhere.
SELECT
    i.ord,
    i.process_no,
    nextval('progressor.tasks_task_id_seq') AS task_id,
    coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
    p.status,
    p.previous_status,
    p.status_changed_at,
    p.created_at,
    p.detail,
    p.aux_state,
    p.metadata,
    p.corrupted_by,
    p.last_event_id,
    p.birth,
    timer.timer_type,
    timer.timer_due,
    named.named_timers
FROM (
    SELECT
        i.*,
        ((SELECT current_setting('prg.locked')::bigint[]))[i.ord] AS process_no
    FROM unnest(%(namespace)s::text[], %(process_id)s::text[], %(idempotency_key)s::text[])
        WITH ORDINALITY AS i (namespace, process_id, idempotency_key, ord)
    OFFSET 0
) AS i
CROSS JOIN LATERAL (
    SELECT p.*
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no
    OFFSET 0
) AS p
-- include timers
WHERE
    p.status = 'running' AND p.rests_until IS NULL AND p.group_no IS NULL
    AND p.namespace_no <> ALL (ARRAY(SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.paused))
    AND
        -- include idle_and_new
ORDER BY i.ord
