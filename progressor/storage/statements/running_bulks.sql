-- What a runner shows: how many bulks of each namespace have not ended, and for how long that one has stood still
-- which has done so longest. As many rows as there are such bulks, by the index of these.
SELECT
    b.namespace,
    count(*) AS bulks,
    greatest(coalesce(%(now)s::timestamptz, now()) - min(b.still_since), interval '0') AS still
FROM progressor.bulks AS b
WHERE b.ended_at IS NULL
GROUP BY b.namespace
