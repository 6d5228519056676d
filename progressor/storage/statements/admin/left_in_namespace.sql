-- The obstacles to retiring a namespace: workers that serve it, a registration so recent that the first
-- heartbeat may still be on its way, and a bounded count of its processes.
SELECT
    n.name,
    n.updated_at > now() - %(lease_age)s::interval AS just_registered,
    (
        SELECT count(*)
        FROM progressor.workers AS w
        WHERE
            n.name = ANY (w.namespaces)
            AND w.seen_at > now() - greatest(w.lease_age, %(lease_age)s::interval)
    ) AS workers,
    (
        SELECT count(*)
        FROM (
            SELECT FROM progressor.processes AS p
            WHERE p.namespace_no = n.namespace_no
            LIMIT %(most)s::bigint
        ) AS counted
    ) AS processes
FROM progressor.namespaces AS n
WHERE n.name = %(name)s::text
