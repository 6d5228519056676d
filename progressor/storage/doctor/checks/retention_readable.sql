-- What code says of a namespace's retention is as every release writes it: durations of ISO 8601, or a number of events.
-- Reads: namespaces, retention.
-- What an operator has set holds in its place. What else a newer release may say is no finding.
SELECT
    n.name AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format('its %%s: %%s', said.key, left(said.value::text, 100)) AS found
FROM progressor.namespaces AS n
CROSS JOIN LATERAL jsonb_each(
    CASE jsonb_typeof(n.options -> 'retention')
        WHEN 'object' THEN n.options -> 'retention'
        ELSE jsonb_build_object('retention', n.options -> 'retention')
    END
) AS said
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND said.value <> 'null'
    AND CASE
        WHEN said.key = 'archive' THEN jsonb_typeof(said.value) <> 'boolean'
        WHEN said.key = 'events' AND jsonb_typeof(said.value) = 'number' THEN said.value < '1'
        WHEN said.key IN ('tasks', 'keys', 'events') THEN
            jsonb_typeof(said.value) <> 'string'
            OR said.value #>> '{}' !~ '^P(?!$)(\d+Y)?(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$'
        ELSE said.key = 'retention'
    END
    AND NOT EXISTS (SELECT FROM progressor.retention AS r WHERE r.namespace_no = n.namespace_no AND r.is_set)
