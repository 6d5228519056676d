-- The keys and constraints with which the schema itself keeps its promises are there, and valid.
-- Reads: the catalogue.
-- What they hold (one running task, one waiting timer, one task per idempotency key) is not counted again.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format(
        '%%s %%s', guard.name,
        CASE WHEN i.indexrelid IS NULL THEN 'is missing' ELSE 'is not valid, or not unique' END
    ) AS found
FROM unnest(ARRAY[
    'namespaces_pkey', 'workers_pkey', 'processes_pkey', 'tasks_pkey', 'tasks_idempotency_key',
    'schedule_pkey', 'schedule_one_timer', 'running_pkey', 'events_pkey'
]) AS guard (name)
LEFT JOIN pg_index AS i ON i.indexrelid = to_regclass(guard.name)
WHERE (i.indisunique AND i.indisvalid AND i.indisready) IS NOT TRUE
UNION ALL
SELECT NULL, NULL, NULL, format('%%s is missing or not valid', guard.name)
FROM unnest(ARRAY[
    'processes_process_id_check', 'processes_status_check', 'processes_last_event_id_check',
    'tasks_task_type_check', 'tasks_status_check', 'tasks_finished_time_check',
    'schedule_status_check', 'schedule_blocked_is_timer_check', 'schedule_blocked_not_claimable_check',
    'events_event_id_check'
]) AS guard (name)
LEFT JOIN pg_constraint AS c
    ON
        c.conname = guard.name
        AND c.conrelid IN (
            to_regclass('processes'), to_regclass('tasks'), to_regclass('schedule'),
            to_regclass('events')
        )
WHERE c.convalidated IS NOT TRUE
