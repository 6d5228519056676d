-- Each sequence has given the highest number of any task, event, message or row of the feed, so that it gives none again.
-- Reads: all tasks, all events, all feed, outbox.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format('%%s is at %%s, and a table has %%s', c.relname, s.last, u.highest) AS found
FROM (
    -- include numbers_in_rows
) AS u
-- include as_the_doctor_sees
WHERE %(namespace)s::text IS NULL AND s.last < u.highest
