-- The events of a process are numbered without a gap from the first that its retention has left, or 1, to its
-- last_event_id; there are no others but those of removed processes that readers of a feed may ask for.
-- Reads: all processes, all events (their index, if it is vacuumed).
SELECT
    coalesce(n.name, gone.namespace) AS namespace,
    coalesce(p.process_id, gone.process_id) AS process_id,
    NULL::bigint AS task_id,
    format(
        '%%s events from %%s to %%s, and %%s', coalesce(e.n, 0), e.low, e.high,
        CASE
            WHEN p.process_no IS NOT NULL THEN format(
                'first_event_id is %%s and last_event_id %%s', coalesce(p.first_event_id, 1), p.last_event_id
            )
            WHEN gone.process_no IS NOT NULL THEN 'the process is removed'
            ELSE format('there is no process %%s', e.process_no)
        END
    ) AS found
FROM progressor.processes AS p
FULL JOIN (
    SELECT e.process_no, count(*) AS n, min(e.event_id) AS low, max(e.event_id) AS high
    FROM progressor.events AS e
    GROUP BY e.process_no
) AS e ON e.process_no = p.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.removed_processes AS gone ON gone.process_no = e.process_no AND p.process_no IS NULL
WHERE
    (%(namespace)s::text IS NULL OR coalesce(n.name, gone.namespace) = %(namespace)s::text)
    AND CASE
        -- Events of a large process that was removed are deleted in pieces.
        WHEN p.process_no IS NULL THEN NOT coalesce(gone.has_events, FALSE) AND NOT EXISTS (
            SELECT FROM progressor.feed_leftovers AS f WHERE f.process_no = e.process_no
        )
        ELSE (coalesce(e.n, 0), coalesce(e.high, p.last_event_id), coalesce(e.low, p.first_event_id, 1))
            <> (p.last_event_id - coalesce(p.first_event_id, 1) + 1, p.last_event_id, coalesce(p.first_event_id, 1))
    END
