-- An operator's figures of one namespace: its broken processes and those started in the last minute, both
-- counted up to a bound, and the times at which its next timers are due. Ranges of indexes, each with a
-- limit.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT FROM progressor.processes AS p
            WHERE p.namespace_no = at.namespace_no AND p.detail IS NOT NULL
            -- In the order of its index, so that the planner takes no other one, however many are broken.
            ORDER BY p.created_at, p.process_no
            LIMIT %(most)s::bigint
        ) AS broken
    ) AS broken,
    (
        SELECT count(*)
        FROM (
            SELECT FROM progressor.processes AS p
            WHERE
                p.namespace_no = at.namespace_no
                AND p.created_at > at.now - interval '1 minute'
                -- In the words and the order of its index, so that the planner takes no other one.
                AND p.created_at > '-infinity'
            ORDER BY p.created_at, p.process_no
            LIMIT %(most)s::bigint
        ) AS started
    ) AS started,
    ARRAY(
        SELECT s.scheduled_time
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = at.namespace_no AND s.claimable
            AND s.task_type IN ('timeout', 'remove') AND s.scheduled_time > at.now
        ORDER BY s.scheduled_time, s.task_id
        LIMIT %(timers)s::bigint
    ) AS next_timers
FROM
    (
        SELECT
            coalesce(%(now)s::timestamptz, now()) AS now,
            (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            ) AS namespace_no
    ) AS at
