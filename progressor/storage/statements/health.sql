-- How many workers live, and what they serve.
SELECT
    (
        SELECT count(*) FROM progressor.workers AS w
        WHERE w.namespaces <> '{}' AND w.seen_at > now() - %(lease_age)s::interval
    ) AS workers,
    (
        SELECT array_agg(DISTINCT served.name ORDER BY served.name)
        FROM progressor.workers AS w, unnest(w.namespaces) AS served (name)
        WHERE w.seen_at > now() - %(lease_age)s::interval
    ) AS namespaces
