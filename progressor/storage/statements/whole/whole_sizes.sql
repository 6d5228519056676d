-- fitting, before a page is read: how many tasks and events these processes have, counted up to one more than a
-- bound of all of them, and the bytes of their values. Those behind it have no row here.
SELECT sum(r.one) AS many, sum(r.bytes) AS bytes
FROM (
    SELECT i.ord, r.one, r.bytes
    FROM unnest(%(process_no)s::bigint[]) WITH ORDINALITY AS i (process_no, ord)
    CROSS JOIN LATERAL (
        -- Of each, so that one without any has a row too. A length is known without the value.
        SELECT
            0 AS one,
            coalesce((
                SELECT octet_length(p.aux_state) FROM progressor.processes AS p WHERE p.process_no = i.process_no
            ), 0) AS bytes
        UNION ALL
        SELECT
            1,
            coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0)
            + coalesce(octet_length(t.response), 0)
        FROM progressor.tasks AS t
        WHERE t.process_no = i.process_no
        UNION ALL
        SELECT 1, octet_length(e.payload) FROM progressor.events AS e WHERE e.process_no = i.process_no
    ) AS r
    -- The processes come in this order: nothing is sorted, and the limit ends the reading.
    ORDER BY i.ord
    LIMIT %(most)s::bigint + cardinality(%(process_no)s::bigint[]) + 1
) AS r
GROUP BY r.ord
ORDER BY r.ord
