-- The events of a process are numbered from 1 to its last_event_id without a gap; no others exist.
-- Reads: all processes, all events (their index, if it is vacuumed).
SELECT
    coalesce(p.namespace, e.namespace) AS namespace,
    coalesce(p.process_id, e.process_id) AS process_id,
    NULL::bigint AS task_id,
    format(
        '%%s events from %%s to %%s, and last_event_id is %%s',
        coalesce(e.n, 0), e.low, e.high, coalesce(p.last_event_id::text, 'that of no process')
    ) AS found
FROM (
    SELECT p.namespace, p.process_id, p.last_event_id
    FROM processes AS p
    WHERE %(namespace)s::text IS NULL OR p.namespace = %(namespace)s::text
) AS p
FULL JOIN (
    SELECT
        e.namespace, e.process_id,
        count(*) AS n, min(e.event_id) AS low, max(e.event_id) AS high
    FROM events AS e
    WHERE %(namespace)s::text IS NULL OR e.namespace = %(namespace)s::text
    GROUP BY e.namespace, e.process_id
) AS e ON e.namespace = p.namespace AND e.process_id = p.process_id
WHERE
    p.last_event_id IS NULL
    OR (coalesce(e.n, 0), coalesce(e.high, 0), coalesce(e.low, 1))
    <> (p.last_event_id, p.last_event_id, 1)
