-- reencode: the args of the next bulks, as stale_states. They are in the place of no process.
WITH stored AS MATERIALIZED (
    SELECT
        b.bulk_id AS process_no, 0::bigint AS id, 0 AS n, r.name AS ring, b.namespace, '' AS process_id,
        'args' AS kind, b.args AS value, r.prefix
    FROM (
        SELECT b.bulk_id, b.namespace, b.args
        FROM progressor.bulks AS b
        WHERE b.bulk_id > %(process_no)s::bigint
        ORDER BY b.bulk_id
        LIMIT %(reads)s::bigint
    ) AS b
    LEFT JOIN (
        -- include rings
    ) AS r ON r.name = b.namespace
),

-- include weighed
