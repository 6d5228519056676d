-- Who lives and what they serve.
SELECT
    (
        SELECT count(*) FROM progressor.workers AS w
        WHERE w.seen_at > now() - %(lease_age)s::interval
    ) AS workers,
    (SELECT array_agg(n.name ORDER BY n.name) FROM progressor.namespaces AS n) AS namespaces
