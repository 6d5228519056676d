-- sweep, sixth: of these processes the last event to go, `cut`, with its time, up to `rows` and `bytes` of all of them but one
-- event at least. Events are in the order of their time, so the first young one ends the look at a process.
-- `is_cut`: the last process may have more.
WITH its AS MATERIALIZED (
    SELECT i.ord, i.process_no, e.event_id, e.timestamp, e.bytes
    FROM unnest(%(process_no)s::bigint[], %(first)s::bigint[], %(until)s::bigint[])
    WITH ORDINALITY AS i (process_no, first, until, ord)
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN %(events_before)s::timestamptz IS NULL THEN i.until
                ELSE coalesce(
                    (
                        SELECT e.event_id - 1
                        FROM progressor.events AS e
                        WHERE
                            e.process_no = i.process_no
                            AND e.event_id BETWEEN i.first AND i.first + %(rows)s::bigint
                            AND e.timestamp >= %(events_before)s::timestamptz
                        ORDER BY e.event_id
                        LIMIT 1
                    ),
                    i.until
                )
            END AS event_id
        OFFSET 0
    ) AS cut
    CROSS JOIN LATERAL (
        SELECT e.event_id, e.timestamp, octet_length(e.payload) AS bytes
        FROM progressor.events AS e
        WHERE e.process_no = i.process_no AND e.event_id BETWEEN i.first AND cut.event_id
        ORDER BY e.event_id
        LIMIT %(rows)s::bigint
    ) AS e
    -- The processes come in this order: nothing is sorted, and the limit ends the reading.
    ORDER BY i.ord
    LIMIT %(rows)s::bigint
),

counted AS (
    SELECT
        its.ord, its.process_no, its.event_id, its.timestamp,
        coalesce(
            sum(its.bytes) OVER (
                ORDER BY its.ord, its.event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            0
        ) AS bytes_before
    FROM its
)

SELECT
    c.process_no, max(c.event_id) AS cut, (array_agg(c.timestamp ORDER BY c.event_id DESC))[1] AS cut_at,
    (SELECT count(*) FROM its) = %(rows)s::bigint
    OR sum(count(*)) OVER () < (SELECT count(*) FROM its) AS is_cut
FROM counted AS c
WHERE c.bytes_before < %(bytes)s::bigint
GROUP BY c.ord, c.process_no
ORDER BY c.ord
