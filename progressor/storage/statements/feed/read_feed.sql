-- Read what is numbered behind a place: at most `window` rows of the feed, so that a filter which fits
-- little costs no more than one that fits all; and of what fits there the first entries, up to `limit` and
-- to `bytes`, but one at least. An entry is an event of a process, with its payload unless it was deleted
-- meanwhile, or what happened to the process: before its events that it was created or repaired, behind
-- them that a step changed it, that it broke or was removed.
--
-- While a reader walks through the processes (walk_feed), only those before `walk` are told here: they are
-- read. What removes one of the others is told too, with all of its events: the walk will not find it.
--
-- How far the feed goes is of the same snapshot, and told even if no entry fits: a younger head would pass
-- over rows that this statement does not see, an older one would hide that rows were deleted.
--
--   entry      what fits
--   edge       the marks of the row of the place, and of the last row that was looked at
WITH entry AS MATERIALIZED (
    SELECT
        f.position, i.item, i.process_no, e.n, f.namespace, i.process_id, i.task_id, e.letter,
        coalesce(e.timestamp, f.appended_at) AS timestamp,
        e.metadata, e.place, e.bytes,
        -- include row_mark
    FROM progressor.feed AS f
    CROSS JOIN LATERAL (
        SELECT i.*, %(walk)s::bigint IS NULL OR i.process_no < %(walk)s::bigint AS is_read
        FROM unnest(
            f.process_nos, f.process_ids, f.task_ids, f.last_event_ids, f.event_counts,
            regexp_split_to_array(f.kinds, '')
        ) WITH ORDINALITY AS i (
            process_no, process_id, task_id, last_event_id, event_count,
            letter, item
        )
    ) AS i
    CROSS JOIN LATERAL (
        SELECT
            0::bigint AS n, i.letter, NULL::timestamptz AS timestamp, NULL::jsonb AS metadata,
            NULL::tid AS place, 0 AS bytes
        WHERE i.letter IN ('c', 'p') AND i.letter = ANY (%(letters)s::text[])
        UNION ALL
        SELECT g.event_id, 'e', e.timestamp, e.metadata, e.ctid, coalesce(octet_length(e.payload), 0)
        FROM generate_series(
            CASE
                WHEN i.is_read THEN i.last_event_id - i.event_count + 1
                WHEN i.process_no = %(walk)s::bigint THEN greatest(%(walk_n)s::bigint, 0) + 1
                ELSE 1
            END,
            i.last_event_id
        ) AS g (event_id)
        LEFT JOIN LATERAL (
            SELECT e.timestamp, e.metadata, e.ctid, e.payload
            FROM progressor.events AS e
            WHERE e.process_no = i.process_no AND e.event_id = g.event_id
            OFFSET 0
        ) AS e ON TRUE
        WHERE
            'e' = ANY (%(letters)s::text[])
            AND (i.is_read OR e.ctid IS NOT NULL)
            -- Nobody knows the name of one that was deleted.
            AND (
                %(names)s::text[] IS NULL OR e.ctid IS NULL
                OR e.metadata ->> 'name' = ANY (%(names)s::text[])
            )
        UNION ALL
        SELECT 9223372036854775807, i.letter, NULL, NULL, NULL, 0
        WHERE i.letter IN ('s', 'b', 'r') AND i.letter = ANY (%(letters)s::text[])
    ) AS e
    WHERE
        f.position BETWEEN %(position)s::bigint AND %(position)s::bigint + %(window)s::bigint
        AND (%(namespaces)s::text[] IS NULL OR f.namespace LIKE ANY (%(namespaces)s::text[]))
        AND (i.is_read OR i.letter = 'r')
        AND
        -- include in_slice
        AND (f.position, i.item, e.n) > (%(position)s::bigint, %(item)s::bigint, %(n)s::bigint)
    ORDER BY f.position, i.item, e.n
    LIMIT %(limit)s::bigint
),

edge AS MATERIALIZED (
    SELECT
        f.position,
        -- include row_mark
    FROM progressor.feed AS f
    WHERE
        f.position = ANY (ARRAY[
            %(position)s::bigint,
            (
                SELECT least(h.position, %(position)s::bigint + %(window)s::bigint)
                FROM progressor.feed_head AS h
            )
        ])
)

SELECT
    h.position AS head, h.dropped, h.epoch,
    (SELECT e.mark FROM edge AS e WHERE e.position = %(position)s::bigint) AS mark_before,
    (SELECT e.mark FROM edge AS e ORDER BY e.position DESC LIMIT 1) AS mark_reached,
    s.position, s.item, s.process_no, s.n, s.mark, s.namespace, s.process_id, s.task_id, s.letter,
    s.timestamp, s.metadata,
    (SELECT v.payload FROM progressor.events AS v WHERE v.ctid = s.place) AS payload, s.found
FROM progressor.feed_head AS h
LEFT JOIN (
    SELECT
        e.*,
        count(*) OVER () AS found,
        sum(e.bytes) OVER (
            ORDER BY e.position, e.item, e.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM entry AS e
) AS s ON coalesce(s.bytes_before, 0) < %(bytes)s::bigint
ORDER BY s.position, s.item, s.n
