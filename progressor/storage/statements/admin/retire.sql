-- Forget a namespace that nobody serves and that has no process, behind `lock_processes`. A worker that
-- registers it at the same time waits for this, or this waits for the worker: then the row is young again.
-- Its groups, its rate, its retention and its samples go with it.
WITH retired AS (
    DELETE FROM progressor.namespaces AS n
    WHERE
        n.name = %(name)s::text
        AND n.updated_at <= now() - %(lease_age)s::interval
        AND NOT EXISTS (
            SELECT FROM progressor.workers AS w
            WHERE
                n.name = ANY (w.namespaces)
                AND w.seen_at > now() - greatest(w.lease_age, %(lease_age)s::interval)
        )
        AND NOT EXISTS (
            SELECT FROM progressor.processes AS p WHERE p.namespace_no = n.namespace_no OFFSET 0
        )
    RETURNING n.namespace_no, n.name
),

dissolved AS (
    DELETE FROM progressor.groups AS g
    USING retired AS r
    WHERE g.namespace_no = r.namespace_no
),

freed AS (
    DELETE FROM progressor.rates AS f
    USING retired AS r
    WHERE f.namespace_no = r.namespace_no
),

swept AS (
    DELETE FROM progressor.retention AS s
    USING retired AS r
    WHERE s.namespace_no = r.namespace_no
),

unsampled AS (
    DELETE FROM progressor.samples AS s
    USING retired AS r
    WHERE s.namespace_no = r.namespace_no
)

SELECT name FROM retired
