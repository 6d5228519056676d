-- How far the feed is numbered, with the mark of that row, and the highest position whose row was deleted.
SELECT h.position, h.dropped, h.epoch, coalesce(f.mark, 0) AS mark
FROM progressor.feed_head AS h
LEFT JOIN LATERAL (
    SELECT
        -- include row_mark
    FROM progressor.feed AS f
    WHERE f.position = ANY (ARRAY[h.position])
    OFFSET 0
) AS f ON TRUE
