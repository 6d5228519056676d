-- A scanner's look at one namespace: whether it is paused, a bounded count of the calls and timers that can
-- be claimed now, how long the oldest of each has waited, and when the next timer is due. Reads a bounded
-- number of rows, by indexes.
SELECT
    at.now,
    coalesce((SELECT n.paused FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text), FALSE) AS paused,
    calls.waiting AS calls_waiting,
    calls.oldest AS calls_oldest,
    timers.waiting AS timers_waiting,
    timers.oldest AS timers_oldest,
    (
        SELECT s.scheduled_time
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = at.namespace_no AND s.claimable
            AND s.task_type IN ('timeout', 'remove') AND s.scheduled_time > at.now
        ORDER BY s.scheduled_time
        LIMIT 1
    ) AS next_due
FROM
    (
        SELECT
            coalesce(%(now)s::timestamptz, now()) AS now,
            (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            ) AS namespace_no
    ) AS at,
    LATERAL (
        SELECT count(*) AS waiting, min(c.scheduled_time) AS oldest
        FROM (
            SELECT s.scheduled_time
            FROM progressor.schedule AS s
            WHERE
                s.namespace_no = at.namespace_no AND s.claimable
                AND s.task_type IN ('init', 'call', 'notify', 'repair')
            ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
            LIMIT %(most)s::bigint
        ) AS c
    ) AS calls,
    LATERAL (
        SELECT count(*) AS waiting, min(t.scheduled_time) AS oldest
        FROM (
            SELECT s.scheduled_time
            FROM progressor.schedule AS s
            WHERE
                s.namespace_no = at.namespace_no AND s.claimable
                AND s.task_type IN ('timeout', 'remove') AND s.scheduled_time <= at.now
            ORDER BY s.scheduled_time, s.task_id
            LIMIT %(most)s::bigint
        ) AS t
    ) AS timers
