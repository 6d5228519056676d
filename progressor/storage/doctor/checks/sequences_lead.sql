-- Each sequence has given the highest number that stands in its tables, so that it gives none again.
-- Reads: all tasks, all processes, removed_processes, kept_answers, task_marks, namespaces, groups, bulks, outbox, all feed, parked.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format('%%s is at %%s, and a table has %%s', b.name, b.last, b.highest) AS found
FROM (
    -- include numbers_behind
) AS b
WHERE %(namespace)s::text IS NULL
