-- drop_leftovers, last: delete the first rows of the feed that are older than `kept`, but for the newest of
-- them, and note how far. Who begins at a moment knows by that one that nothing from then on is deleted; and
-- who has read all can go on behind it, however long nothing comes. Rows are numbered before: without a
-- reader nobody else does it.
WITH old_row AS MATERIALIZED (
    SELECT f.feed_id, f.position
    FROM (
        SELECT
            f.feed_id, f.position,
            count(*) FILTER (
                WHERE f.appended_at >= coalesce(%(now)s::timestamptz, now()) - %(kept)s::interval
            ) OVER (ORDER BY f.position ROWS UNBOUNDED PRECEDING) AS young
        FROM (
            SELECT f.feed_id, f.position, f.appended_at
            FROM progressor.feed AS f
            WHERE f.position <= (SELECT h.position FROM progressor.feed_head AS h)
            ORDER BY f.position
            LIMIT %(limit)s::bigint + 1
        ) AS f
    ) AS f
    -- The number grows, which PostgreSQL knows: the first young row ends the reading.
    WHERE f.young < 1
),

dropped AS (
    DELETE FROM progressor.feed AS f
    USING old_row AS r
    WHERE
        f.feed_id = ANY (ARRAY[r.feed_id])
        AND r.position < (SELECT max(o.position) FROM old_row AS o)
    RETURNING f.position
),

head AS (
    UPDATE progressor.feed_head AS h
    SET dropped = greatest(h.dropped, d.last)
    FROM (SELECT max(d.position) AS last FROM dropped AS d) AS d
    WHERE d.last IS NOT NULL
)

SELECT count(*) = %(limit)s::bigint AS has_more FROM dropped
