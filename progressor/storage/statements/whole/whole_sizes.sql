-- fitting, before a page is read: how many tasks and events these processes have, counted up to one more than a
-- bound of all of them. Those behind it have no row here.
SELECT sum(r.one) AS many
FROM (
    SELECT i.ord, r.one
    FROM unnest(%(process_no)s::bigint[]) WITH ORDINALITY AS i (process_no, ord)
    CROSS JOIN LATERAL (
        -- Of each, so that one without any has a row too.
        SELECT 0 AS one
        UNION ALL
        SELECT 1 FROM progressor.tasks AS t WHERE t.process_no = i.process_no
        UNION ALL
        SELECT 1 FROM progressor.events AS e WHERE e.process_no = i.process_no
    ) AS r
    -- The processes come in this order: nothing is sorted, and the limit ends the reading.
    ORDER BY i.ord
    LIMIT %(most)s::bigint + cardinality(%(process_no)s::bigint[]) + 1
) AS r
GROUP BY r.ord
ORDER BY r.ord
