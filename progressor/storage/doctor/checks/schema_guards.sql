-- The keys and constraints with which the schema itself keeps its promises are there, and valid.
-- Reads: the catalogue.
-- What they hold (one running task, one waiting timer, one task per idempotency key) is not counted again.
-- Statements find rows by `process_no + 0`: an index of that name on anything else would not be read.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    CASE
        WHEN i.indexrelid IS NULL THEN format('%%s is missing', guard.name)
        WHEN keys.found <> guard.keys THEN format('%%s is on %%s', guard.name, keys.found)
        ELSE format('%%s is not valid, or not unique', guard.name)
    END AS found
FROM (
    VALUES
    ('namespaces_pkey', 'namespace_no'),
    ('namespaces_name', 'name'),
    ('workers_pkey', 'worker_id'),
    ('processes_pkey', 'process_no'),
    ('processes_name', 'namespace_no, process_id'),
    ('removed_processes_pkey', 'process_no'),
    ('tasks_pkey', 'process_no, task_id'),
    ('tasks_idempotency_key', '(process_no + 0), idempotency_key'),
    ('schedule_pkey', 'process_no, task_id'),
    ('schedule_one_timer', '(process_no + 0)'),
    ('running_pkey', 'process_no'),
    ('events_pkey', 'process_no, event_id'),
    ('tokens_pkey', 'token_id')
) AS guard (name, keys)
LEFT JOIN pg_index AS i ON i.indexrelid = to_regclass('progressor.' || guard.name)
CROSS JOIN LATERAL (
    SELECT string_agg(pg_get_indexdef(i.indexrelid, place, TRUE), ', ' ORDER BY place) AS found
    FROM generate_series(1, i.indnkeyatts) AS place
) AS keys
WHERE (i.indisunique AND i.indisvalid AND i.indisready AND keys.found = guard.keys) IS NOT TRUE
UNION ALL
SELECT NULL, NULL, NULL, format('%%s is missing or not valid', guard.name)
FROM unnest(ARRAY[
    'processes_process_id_check', 'processes_detail_check', 'processes_last_event_id_check',
    'tasks_finished_time_check', 'events_event_id_check', 'tokens_secret_hash_check',
    'tokens_scopes_check', 'tokens_namespaces_check'
]) AS guard (name)
LEFT JOIN pg_constraint AS c
    ON
        c.conname = guard.name
        AND c.conrelid IN (
            to_regclass('progressor.processes'), to_regclass('progressor.tasks'),
            to_regclass('progressor.events'), to_regclass('progressor.tokens')
        )
WHERE c.convalidated IS NOT TRUE
