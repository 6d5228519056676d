-- The namespaces that live workers serve, and how many workers serve each.
SELECT
    served.name,
    count(*) AS workers
FROM progressor.workers AS w, unnest(w.namespaces) AS served (name)
WHERE w.seen_at > now() - %(lease_age)s::interval
GROUP BY served.name
ORDER BY served.name
