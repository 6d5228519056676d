-- reencode: the payloads of the next events, by process, as stale_states.
WITH stored AS MATERIALIZED (
    SELECT
        i.process_no, i.event_id AS id, 0 AS n, r.name AS ring, r.name AS namespace, p.process_id,
        'event' AS kind, i.payload AS value, r.prefix
    FROM (
        SELECT e.process_no, e.event_id, e.payload
        FROM progressor.events AS e
        WHERE (e.process_no, e.event_id) > (%(process_no)s::bigint, %(id)s::bigint)
        ORDER BY e.process_no, e.event_id
        LIMIT %(reads)s::bigint
    ) AS i
    -- include its_ring
),

-- include weighed
