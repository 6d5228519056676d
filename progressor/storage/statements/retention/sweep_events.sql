-- sweep, ninth: delete the first events of locked processes, each up to its last, and note which is the first
-- that is left. No other event of a process that is there comes or goes before it. If the last one has another
-- time than the one that was looked at, the server lost that one, and gave its number again: then all stay. A
-- bulk that began to repair a process has come first.
WITH old_event AS MATERIALIZED (
    SELECT i.process_no, e.event_id
    FROM unnest(
        %(process_no)s::bigint[], %(first)s::bigint[], %(last)s::bigint[], %(last_at)s::timestamptz[]
    ) AS i (process_no, first, last, last_at)
    CROSS JOIN LATERAL (
        SELECT FROM progressor.events AS e
        WHERE e.process_no = i.process_no AND e.event_id = i.last AND e.timestamp = i.last_at
        OFFSET 0
    ) AS its_last
    CROSS JOIN LATERAL (
        SELECT e.event_id
        FROM progressor.events AS e
        WHERE e.process_no = i.process_no AND e.event_id BETWEEN i.first AND i.last
        OFFSET 0
    ) AS e
    WHERE i.process_no <> ALL (ARRAY(SELECT b.process_no FROM progressor.bulk_repairs AS b))
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
