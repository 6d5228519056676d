-- The load of these namespaces together, a row for each minute of a time up to now.
SELECT
    s.sampled_at AS at,
    sum(s.broken)::bigint AS broken,
    sum(s.waiting)::bigint AS waiting,
    sum(s.timers)::bigint AS timers,
    sum(s.running)::bigint AS running,
    sum(s.steps)::bigint AS steps,
    sum(s.slots)::bigint AS slots,
    max(s.age) AS age
FROM progressor.namespaces AS n
JOIN progressor.samples AS s ON s.namespace_no = n.namespace_no
WHERE n.name = ANY (%(namespaces)s::text[]) AND s.sampled_at > now() - %(within)s::interval
GROUP BY s.sampled_at
ORDER BY s.sampled_at
