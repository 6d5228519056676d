-- The workers that serve a namespace and their free slots there, for spreading wakes.
SELECT
    w.worker_id,
    coalesce((w.free_slots ->> %(namespace)s::text)::bigint, 0) AS free_slots
FROM progressor.workers AS w
WHERE
    %(namespace)s::text = ANY (w.namespaces)
    AND w.seen_at > now() - %(lease_age)s::interval
