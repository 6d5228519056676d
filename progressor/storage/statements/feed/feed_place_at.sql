-- The position before all rows that are not older than a moment, and the highest whose row was deleted. Rows
-- are in the order of time, but for those that were committed later than others, so the place is found by
-- halves. One that came late may have led behind others: of the rows before it, `back` are looked at too.
WITH RECURSIVE half AS (
    SELECT h.dropped AS low, h.position + 1 AS high
    FROM progressor.feed_head AS h
    UNION ALL
    SELECT
        CASE WHEN f.is_older THEN (half.low + half.high) / 2 ELSE half.low END,
        CASE WHEN f.is_older THEN half.high ELSE (half.low + half.high) / 2 END
    FROM half
    CROSS JOIN LATERAL (
        SELECT f.appended_at < %(moment)s::timestamptz AS is_older
        FROM progressor.feed AS f
        WHERE f.position = (half.low + half.high) / 2
        OFFSET 0
    ) AS f
    WHERE half.high - half.low > 1
)

SELECT coalesce(f.position - 1, half.low) AS position, h.dropped, h.epoch
FROM (
    SELECT half.low
    FROM half
    ORDER BY half.high - half.low
    LIMIT 1
) AS half
CROSS JOIN progressor.feed_head AS h
LEFT JOIN LATERAL (
    SELECT f.position
    FROM progressor.feed AS f
    WHERE
        f.position BETWEEN half.low - %(back)s::bigint AND half.low
        AND f.appended_at >= %(moment)s::timestamptz
    ORDER BY f.position
    LIMIT 1
) AS f ON TRUE
