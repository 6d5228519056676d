-- For the metrics of a runner: the number of bulks of each namespace that have not ended, and the longest
-- time for which one of them has stood still. Reads as many rows as there are such bulks, by their index.
SELECT
    b.namespace,
    count(*) AS bulks,
    greatest(coalesce(%(now)s::timestamptz, now()) - min(b.still_since), interval '0') AS still
FROM progressor.bulks AS b
WHERE b.ended_at IS NULL
GROUP BY b.namespace
