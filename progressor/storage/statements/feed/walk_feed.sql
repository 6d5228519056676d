-- Read what processes have stored, for a reader that begins at the beginning: processes in the order of
-- their numbers, from `walk` on, of which the entries up to `walk_n` were read. That is told of each which
-- the feed does not tell behind its last position. This comes after lock_feed, which keeps that position,
-- and number_feed; a row that has none yet is committed since. The statement looks at `window` processes at
-- most, and at about `limit` events, whatever the filter. An entry is as in read_feed.
--
-- A process that was removed since is not found here. The walk stops before it: once its removal has a
-- position, the feed tells what is not read of it, but not of a process that the walk has passed.
--
--   fresh      what rows without a position tell: by process the last event before those
--   stop       the process before which the walk stops, if it does
--   candidate  the next processes, and up to which event each is read
--   chosen     those for which there is room, and what was read then
--   entry      what fits
WITH fresh AS MATERIALIZED (
    SELECT
        i.process_no, min(i.last_event_id - i.event_count) AS last_event_id, bool_or(i.letter = 'c') AS is_new,
        bool_or(i.letter = 'r') AS is_gone
    FROM progressor.feed AS f
    CROSS JOIN LATERAL unnest(
        f.process_nos, f.last_event_ids, f.event_counts, regexp_split_to_array(f.kinds, '')
    ) AS i (process_no, last_event_id, event_count, letter)
    WHERE f.position IS NULL
    GROUP BY i.process_no
),

stop AS MATERIALIZED (
    SELECT min(f.process_no) AS process_no
    FROM fresh AS f
    WHERE f.is_gone AND f.process_no >= %(walk)s::bigint
),

candidate AS MATERIALIZED (
    SELECT
        p.process_no, p.namespace_no, p.process_id, p.created_at, p.status, p.status_changed_at,
        p.corrupted_by, f.process_no IS NOT NULL AS is_fresh, coalesce(f.is_new, FALSE) AS is_new,
        -- Until its init has succeeded, it is not created: the feed tells that.
        p.status = 'init' OR (p.status = 'error' AND p.previous_status IS NOT DISTINCT FROM 'init') AS begins,
        CASE WHEN p.process_no = %(walk)s::bigint THEN %(walk_n)s::bigint ELSE -1 END AS behind,
        greatest(
            CASE WHEN p.process_no = %(walk)s::bigint THEN %(walk_n)s::bigint ELSE 0 END,
            coalesce(p.first_event_id, 1) - 1
        ) AS read_until,
        coalesce(f.last_event_id, p.last_event_id) AS last_event_id
    FROM (
        SELECT p.*
        FROM progressor.processes AS p
        WHERE
            p.process_no >= %(walk)s::bigint
            AND p.process_no < (SELECT coalesce(s.process_no, 9223372036854775807) FROM stop AS s)
        ORDER BY p.process_no
        LIMIT %(window)s::bigint
    ) AS p
    LEFT JOIN fresh AS f ON f.process_no = p.process_no
),

chosen AS MATERIALIZED (
    SELECT c.*, least(c.last_event_id, c.read_until + %(limit)s::bigint) AS last_n
    FROM (
        SELECT
            c.*,
            sum(greatest(0, least(c.last_event_id - c.read_until, %(limit)s::bigint))) OVER (
                ORDER BY c.process_no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS events_before
        FROM candidate AS c
    ) AS c
    WHERE coalesce(c.events_before, 0) < %(limit)s::bigint
),

entry AS MATERIALIZED (
    SELECT
        i.process_no, e.n, n.name AS namespace, i.process_id, e.task_id, e.letter, e.timestamp, e.metadata,
        e.place, e.bytes
    FROM chosen AS i
    JOIN progressor.namespaces AS n
        ON n.namespace_no = ANY (ARRAY[i.namespace_no]) AND (n.options ->> 'feed')::boolean
    CROSS JOIN LATERAL (
        SELECT
            0::bigint AS n, 'c' AS letter, NULL::bigint AS task_id, i.created_at AS timestamp,
            NULL::jsonb AS metadata, NULL::tid AS place, 0 AS bytes
        WHERE 'c' = ANY (%(letters)s::text[]) AND i.behind < 0 AND NOT (i.is_new OR i.begins)
        UNION ALL
        SELECT e.event_id, 'e', e.task_id, e.timestamp, e.metadata, e.ctid, octet_length(e.payload)
        FROM progressor.events AS e
        WHERE
            'e' = ANY (%(letters)s::text[])
            AND e.process_no = i.process_no AND e.event_id > i.read_until AND e.event_id <= i.last_n
            AND (%(names)s::text[] IS NULL OR e.metadata ->> 'name' = ANY (%(names)s::text[]))
        UNION ALL
        SELECT 9223372036854775807, 'b', i.corrupted_by, i.status_changed_at, NULL, NULL, 0
        WHERE
            'b' = ANY (%(letters)s::text[])
            AND i.status = 'error' AND NOT i.is_fresh AND i.last_n = i.last_event_id
    ) AS e
    WHERE
        (%(namespaces)s::text[] IS NULL OR n.name LIKE ANY (%(namespaces)s::text[]))
        AND
        -- include in_slice
)

SELECT
    (SELECT count(*) FROM candidate) < %(window)s::bigint
    AND (SELECT count(*) FROM candidate) = (SELECT count(*) FROM chosen)
    AND coalesce(edge.is_whole, TRUE)
    AND (SELECT s.process_no IS NULL FROM stop AS s) AS is_last,
    CASE
        WHEN edge.is_whole THEN edge.process_no + 1
        ELSE coalesce(edge.process_no, %(walk)s::bigint)
    END AS next_no,
    CASE
        WHEN edge.is_whole THEN -1
        ELSE coalesce(edge.last_n, %(walk_n)s::bigint)
    END AS next_n,
    s.process_no, s.n, s.namespace, s.process_id, s.task_id, s.letter, s.timestamp, s.metadata,
    (SELECT v.payload FROM progressor.events AS v WHERE v.ctid = s.place) AS payload, s.found
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT c.process_no, c.last_n, c.last_n >= c.last_event_id AS is_whole
    FROM chosen AS c
    ORDER BY c.process_no DESC
    LIMIT 1
) AS edge ON TRUE
LEFT JOIN (
    SELECT
        e.*,
        count(*) OVER () AS found,
        sum(e.bytes) OVER (
            ORDER BY e.process_no, e.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM entry AS e
) AS s ON coalesce(s.bytes_before, 0) < %(bytes)s::bigint
ORDER BY s.process_no, s.n
