-- All namespaces, or one, with the workers that serve it, by the leases that these keep themselves.
SELECT
    n.name,
    n.paused,
    n.updated_at,
    served.workers,
    served.free_slots,
    served.steps,
    served.workers * (n.options ->> 'concurrency')::bigint AS slots,
    -- An older release, which knows no reasons, may have resumed it.
    CASE WHEN n.paused THEN n.pause_reason END AS pause_reason
FROM progressor.namespaces AS n
CROSS JOIN LATERAL (
    SELECT
        count(*) AS workers,
        coalesce(sum((w.free_slots ->> n.name)::bigint), 0)::bigint AS free_slots,
        coalesce(sum((w.steps ->> n.name)::bigint), 0)::bigint AS steps
    FROM progressor.workers AS w
    WHERE n.name = ANY (w.namespaces) AND w.seen_at > now() - w.lease_age
) AS served
WHERE %(name)s::text IS NULL OR n.name = %(name)s::text
ORDER BY n.name
