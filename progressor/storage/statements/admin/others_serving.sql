-- The other live workers that serve a function of a namespace, and their free slots there. A raw handler
-- serves every function. A worker of a release that lists none is not counted.
SELECT
    w.worker_id,
    coalesce((w.free_slots ->> %(namespace)s::text)::bigint, 0) AS free_slots
FROM progressor.workers AS w
WHERE
    %(namespace)s::text = ANY (w.namespaces)
    AND w.worker_id <> %(worker_id)s::bigint
    AND w.seen_at > now() - %(lease_age)s::interval
    AND (w.functions -> %(namespace)s::text) ?| ARRAY[
        '*',
        %(function)s::text,
        -- A function for all timers serves those with names, too.
        CASE WHEN starts_with(%(function)s::text, 'timeout ') THEN 'timeout' ELSE %(function)s::text END
    ]
