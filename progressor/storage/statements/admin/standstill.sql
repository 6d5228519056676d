-- The reason why a request has no answer yet: whether its namespace is paused, whether a live worker serves
-- it, and how many requests wait before it on its process, counted in the index of the process alone.
SELECT
    n.paused,
    EXISTS (
        SELECT FROM progressor.workers AS w
        WHERE n.name = ANY (w.namespaces) AND w.seen_at > now() - w.lease_age
    ) AS served,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM progressor.schedule AS s
            WHERE
                s.process_no = %(process_no)s::bigint
                AND s.task_type IN ('init', 'call', 'notify', 'repair')
                AND s.task_id < %(task_id)s::bigint
            LIMIT %(most)s::bigint
        ) AS before_it
    ) AS requests_before
FROM progressor.namespaces AS n
WHERE n.name = %(namespace)s::text
