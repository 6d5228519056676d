-- Which bulk is to be looked at first, and in how long; no row if none runs.
SELECT b.next_at - coalesce(%(now)s::timestamptz, now()) AS due_in
FROM progressor.bulks AS b
WHERE b.ended_at IS NULL
ORDER BY b.next_at, b.bulk_id
LIMIT 1
