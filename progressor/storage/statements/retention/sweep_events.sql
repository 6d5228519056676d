-- sweep, sixth: delete the first events of locked processes, each up to its `cut`, up to `rows` and `bytes`
-- but one at least, and note which is the first that is left. There may be more if all that were found did
-- not have room.
WITH old_event AS MATERIALIZED (
    SELECT
        its.process_no, its.event_id,
        sum(its.bytes) OVER (
            ORDER BY its.process_no, its.event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM (
        SELECT e.process_no, e.event_id, e.bytes
        FROM unnest(%(process_no)s::bigint[], %(cut)s::bigint[]) AS i (process_no, cut)
        CROSS JOIN LATERAL (
            SELECT e.process_no, e.event_id, octet_length(e.payload) AS bytes
            FROM progressor.events AS e
            WHERE e.process_no = i.process_no AND e.event_id <= i.cut
            ORDER BY e.event_id
            LIMIT %(rows)s::bigint
        ) AS e
        LIMIT %(rows)s::bigint
    ) AS its
),

gone AS (
    DELETE FROM progressor.events AS e
    USING old_event AS i
    WHERE
        e.process_no = ANY (ARRAY[i.process_no]) AND e.event_id = i.event_id
        AND coalesce(i.bytes_before, 0) < %(bytes)s::bigint
    RETURNING e.process_no, e.event_id
),

noted AS (
    UPDATE progressor.processes AS p
    SET first_event_id = i.event_id + 1
    FROM (SELECT g.process_no, max(g.event_id) AS event_id FROM gone AS g GROUP BY g.process_no) AS i
    WHERE p.process_no = ANY (ARRAY[i.process_no])
)

SELECT
    count(*) AS deleted,
    (SELECT count(*) FROM old_event) = %(rows)s::bigint
    OR EXISTS (SELECT FROM old_event WHERE bytes_before >= %(bytes)s::bigint) AS has_more
FROM gone
