-- sweep, ninth: delete the first events of locked processes, each up to its `cut`, and note which is the first
-- that is left. No other event of a process that is there comes or goes before it.
WITH old_event AS MATERIALIZED (
    SELECT i.process_no, e.event_id
    FROM unnest(%(process_no)s::bigint[], %(first)s::bigint[], %(cut)s::bigint[]) AS i (process_no, first, cut)
    CROSS JOIN LATERAL (
        SELECT e.event_id
        FROM progressor.events AS e
        WHERE e.process_no = i.process_no AND e.event_id BETWEEN i.first AND i.cut
        OFFSET 0
    ) AS e
),

gone AS (
    DELETE FROM progressor.events AS e
    USING old_event AS i
    WHERE e.process_no = ANY (ARRAY[i.process_no]) AND e.event_id = i.event_id
    RETURNING e.process_no, e.event_id
),

noted AS (
    UPDATE progressor.processes AS p
    SET first_event_id = i.event_id + 1
    FROM (SELECT g.process_no, max(g.event_id) AS event_id FROM gone AS g GROUP BY g.process_no) AS i
    WHERE p.process_no = ANY (ARRAY[i.process_no])
)

SELECT count(*) AS deleted FROM gone
