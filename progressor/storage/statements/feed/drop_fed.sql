-- drop_leftovers, third: delete events of removed processes that stayed for readers of the feed, up to
-- `rows`, and forget the processes of which none is left.
--
--   due                 the processes whose events stayed long enough
--   old_event, event    their first events, and one more; these, deleted
--   emptied             the processes of which that was all
WITH due AS MATERIALIZED (
    SELECT f.process_no
    FROM progressor.feed_leftovers AS f
    WHERE f.kept_until < coalesce(%(now)s::timestamptz, now())
    ORDER BY f.kept_until
    LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),

old_event AS MATERIALIZED (
    SELECT e.process_no, e.event_id
    FROM due
    CROSS JOIN LATERAL (
        SELECT e.process_no, e.event_id
        FROM progressor.events AS e
        WHERE e.process_no = due.process_no
        ORDER BY e.event_id
        LIMIT %(rows)s::bigint + 1
    ) AS e
    LIMIT %(rows)s::bigint + 1
),

event AS (
    DELETE FROM progressor.events AS e
    USING (SELECT o.* FROM old_event AS o LIMIT %(rows)s::bigint) AS i
    WHERE e.process_no = ANY (ARRAY[i.process_no]) AND e.event_id = i.event_id
),

emptied AS (
    DELETE FROM progressor.feed_leftovers AS f
    USING due
    WHERE
        (SELECT count(*) FROM old_event) <= %(rows)s::bigint
        AND f.process_no = ANY (ARRAY[due.process_no])
)

SELECT
    (SELECT count(*) FROM old_event) > %(rows)s::bigint
    OR (SELECT count(*) FROM due) = %(limit)s::bigint AS has_more
