-- The positions of the feed have no gap, from behind the last that was deleted to the last that was given.
-- Reads: all feed, feed_head.
SELECT
    NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    format(
        '%%s positions from %%s to %%s; %%s was deleted last, %%s given last', f.n, f.low, f.high,
        h.dropped, h.position
    ) AS found
FROM progressor.feed_head AS h
CROSS JOIN (
    SELECT count(position) AS n, min(position) AS low, max(position) AS high FROM progressor.feed
) AS f
WHERE
    %(namespace)s::text IS NULL
    AND (f.n, coalesce(f.low, h.dropped + 1), coalesce(f.high, h.position))
    <> (h.position - h.dropped, h.dropped + 1, h.position)
