-- After lock_feed: give the next positions to the rows of the feed that are committed and have none, in the
-- order in which they were appended. A row that is committed later gets a later position: nothing appears
-- below one that was given. Of two changes of a process the second is appended after the first is
-- committed, so whoever sees the second sees the first.
WITH unnumbered AS MATERIALIZED (
    SELECT f.feed_id, row_number() OVER (ORDER BY f.feed_id) AS n
    FROM (
        SELECT f.feed_id
        FROM progressor.feed AS f
        WHERE f.position IS NULL AND current_setting('prg.feed', TRUE) = 'locked'
        ORDER BY f.feed_id
        LIMIT %(limit)s::bigint
    ) AS f
),

head AS (
    UPDATE progressor.feed_head AS h
    SET position = h.position + u.many
    FROM (SELECT count(*) AS many FROM unnumbered) AS u
    WHERE u.many > 0
    RETURNING h.position - u.many AS before
),

numbered AS (
    UPDATE progressor.feed AS f
    SET position = head.before + u.n
    FROM unnumbered AS u
    CROSS JOIN head
    WHERE f.feed_id = ANY (ARRAY[u.feed_id])
)

SELECT count(*) = %(limit)s::bigint AS has_more FROM unnumbered
