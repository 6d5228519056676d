-- Note the load of namespaces, of each once a minute: by the first scanner that comes. Of these namespaces
-- forget what is older than a day.
WITH given AS (
    SELECT n.namespace_no, g.broken, g.waiting, g.timers, g.running, g.steps, g.slots, g.age
    FROM unnest(
        %(namespace)s::text[], %(broken)s::bigint[], %(waiting)s::bigint[], %(timers)s::bigint[],
        %(running)s::bigint[], %(steps)s::bigint[], %(slots)s::bigint[], %(age)s::bigint[]
    ) AS g (namespace, broken, waiting, timers, running, steps, slots, age)
    JOIN progressor.namespaces AS n ON n.name = g.namespace
),

forgotten AS (
    DELETE FROM progressor.samples AS s
    USING given AS g
    WHERE s.namespace_no = g.namespace_no AND s.sampled_at < now() - interval '1 day'
)

INSERT INTO progressor.samples (
    namespace_no, sampled_at, broken, waiting, timers, running, steps, slots, age
)
SELECT
    g.namespace_no, date_trunc('minute', now()), g.broken, g.waiting, g.timers, g.running, g.steps, g.slots,
    g.age * interval '1 microsecond'
FROM given AS g
ORDER BY g.namespace_no
ON CONFLICT (namespace_no, sampled_at) DO NOTHING
