-- The time until the next round of a bulk is due; no row if no bulk runs.
SELECT b.next_at - coalesce(%(now)s::timestamptz, now()) AS due_in
FROM progressor.bulks AS b
WHERE b.ended_at IS NULL
ORDER BY b.next_at, b.bulk_id
LIMIT 1
