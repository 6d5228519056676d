-- All namespaces, or one, with the workers that serve it, by the leases that these keep themselves.
-- Grouped, not joined: each worker is read once, however many namespaces there are. Its row is as long as they are many.
SELECT
    said.name,
    bool_or(said.paused) AS paused,
    max(said.updated_at) AS updated_at,
    sum(said.workers)::bigint AS workers,
    coalesce(sum(said.free_slots), 0)::bigint AS free_slots,
    coalesce(sum(said.steps), 0)::bigint AS steps,
    sum(said.workers)::bigint * max(said.concurrency) AS slots,
    max(said.pause_reason) AS pause_reason
FROM (
    SELECT
        n.name,
        n.paused,
        n.updated_at,
        (n.options ->> 'concurrency')::bigint AS concurrency,
        -- An older release, which knows no reasons, may have resumed it.
        CASE WHEN n.paused THEN n.pause_reason END AS pause_reason,
        0 AS workers,
        0 AS free_slots,
        0 AS steps
    FROM progressor.namespaces AS n
    WHERE %(name)s::text IS NULL OR n.name = %(name)s::text
    UNION ALL
    SELECT served.name, NULL, NULL, NULL, NULL, served.workers, served.free_slots, served.steps
    FROM progressor.workers AS w
    CROSS JOIN LATERAL (
        SELECT %(name)s::text, 1, (w.free_slots ->> %(name)s::text)::bigint, (w.steps ->> %(name)s::text)::bigint
        WHERE %(name)s::text = ANY (w.namespaces)
        UNION ALL
        SELECT u.name, 1, 0, 0 FROM unnest(w.namespaces) AS u (name) WHERE %(name)s::text IS NULL
        UNION ALL
        SELECT f.key, 0, f.value::bigint, 0 FROM jsonb_each_text(w.free_slots) AS f WHERE %(name)s::text IS NULL
        UNION ALL
        SELECT s.key, 0, 0, s.value::bigint FROM jsonb_each_text(w.steps) AS s WHERE %(name)s::text IS NULL
    ) AS served (name, workers, free_slots, steps)
    WHERE w.seen_at > now() - w.lease_age
) AS said
GROUP BY said.name
-- A worker may still serve what was retired.
HAVING count(said.updated_at) > 0
ORDER BY said.name
