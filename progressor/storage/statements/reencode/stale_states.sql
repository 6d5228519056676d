-- reencode: the states of the next processes, by number: of each its first bytes, and the whole of those that
-- are not of the active key of their namespace, up to `most` and `most_bytes` of these but one row at least.
-- Without a ring it is no namespace to write. Nothing is locked.
WITH stored AS MATERIALIZED (
    SELECT
        p.process_no, 0::bigint AS id, 0 AS n, r.name AS ring, r.name AS namespace, p.process_id,
        'state' AS kind, p.aux_state AS value, r.prefix
    FROM (
        SELECT p.process_no, p.namespace_no, p.process_id, p.aux_state
        FROM progressor.processes AS p
        WHERE p.process_no > %(process_no)s::bigint
        ORDER BY p.process_no
        LIMIT %(reads)s::bigint
    ) AS p
    LEFT JOIN (
        -- include rings
    ) AS r ON r.namespace_no = p.namespace_no
),

-- include weighed
