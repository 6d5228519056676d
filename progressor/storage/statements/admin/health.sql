-- The number of live workers, the namespaces that they serve, and the paused namespaces.
SELECT
    (
        SELECT count(*) FROM progressor.workers AS w
        WHERE w.namespaces <> '{}' AND w.seen_at > now() - %(lease_age)s::interval
    ) AS workers,
    (
        SELECT array_agg(DISTINCT served.name ORDER BY served.name)
        FROM progressor.workers AS w, unnest(w.namespaces) AS served (name)
        WHERE w.seen_at > now() - %(lease_age)s::interval
    ) AS namespaces,
    (SELECT array_agg(n.name ORDER BY n.name) FROM progressor.namespaces AS n WHERE n.paused) AS paused
