-- A scanner's look at one namespace: whether it is paused, a bounded count of the calls and timers that can
-- be claimed now, how long the oldest of each has waited, and when the next timer is due. Tasks that were held
-- until a time are counted with the timers: a claim of timers releases them. Of a group that has room, one task
-- that waits for it is counted with the calls. What a rate lets rest is counted too, but for groups: until when
-- the namespace rests, and when the first group may go on, is told beside. Reads a bounded number of rows, by
-- indexes.
WITH RECURSIVE
-- include waiting_groups

SELECT
    at.now,
    coalesce((SELECT n.paused FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text), FALSE) AS paused,
    calls.waiting AS calls_waiting,
    calls.oldest AS calls_oldest,
    timers.waiting AS timers_waiting,
    timers.oldest AS timers_oldest,
    least(
        (
            SELECT s.scheduled_time
            FROM progressor.schedule AS s
            WHERE
                s.namespace_no = at.namespace_no AND s.claimable
                AND s.task_type IN ('timeout', 'remove') AND s.scheduled_time > at.now
            ORDER BY s.scheduled_time
            LIMIT 1
        ),
        (
            SELECT s.held_time
            FROM progressor.schedule AS s
            WHERE s.namespace_no = at.namespace_no AND s.group_no IS NULL AND s.held_time > at.now
            -- With the group, which is NULL: in the words of the index, or all of them would be sorted.
            ORDER BY s.group_no, s.held_time
            LIMIT 1
        )
    ) AS next_due,
    (
        SELECT r.next_at
        FROM progressor.rates AS r
        WHERE r.namespace_no = at.namespace_no AND r.next_at > at.now AND at.has_rate
    ) AS rests_until,
    (
        SELECT min(g.next_at)
        FROM (SELECT f.group_no FROM found AS f LIMIT 1000) AS f
        CROSS JOIN LATERAL (
            SELECT g.group_no, g.group_limit, g.next_at
            FROM progressor.groups AS g
            WHERE g.group_no = f.group_no
            OFFSET 0
        ) AS g
        -- include room
        WHERE room.tasks > 0 AND g.next_at > at.now AND at.groups_have_rate
    ) AS next_room
FROM
    (
        SELECT
            coalesce(%(now)s::timestamptz, now()) AS now,
            (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            ) AS namespace_no,
            (
                SELECT n.options ->> 'rate' IS NOT NULL
                FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            ) AS has_rate,
            (
                SELECT n.options ->> 'group_rate' IS NOT NULL
                FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            ) AS groups_have_rate
    ) AS at,
    LATERAL (
        SELECT count(*) AS waiting, min(c.scheduled_time) AS oldest
        FROM (
            (
                SELECT s.scheduled_time
                FROM progressor.schedule AS s
                WHERE
                    s.namespace_no = at.namespace_no AND s.claimable
                    AND s.task_type IN ('init', 'call', 'notify', 'repair')
                ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
                LIMIT %(most)s::bigint
            )
            UNION ALL
            SELECT oldest.held_time
            FROM (SELECT f.group_no FROM found AS f LIMIT 1000) AS f
            CROSS JOIN LATERAL (
                SELECT g.group_no, g.group_limit, g.next_at
                FROM progressor.groups AS g
                WHERE g.group_no = f.group_no
                OFFSET 0
            ) AS g
            -- include room
            CROSS JOIN LATERAL (
                SELECT s.held_time
                FROM progressor.schedule AS s
                WHERE s.namespace_no = at.namespace_no AND s.group_no = g.group_no AND s.held_time IS NOT NULL
                ORDER BY s.held_time
                LIMIT 1
            ) AS oldest
            WHERE room.tasks > 0 AND NOT (at.groups_have_rate AND coalesce(g.next_at > at.now, FALSE))
            LIMIT %(most)s::bigint
        ) AS c
    ) AS calls,
    LATERAL (
        SELECT count(*) AS waiting, min(t.scheduled_time) AS oldest
        FROM (
            (
                SELECT s.scheduled_time
                FROM progressor.schedule AS s
                WHERE
                    s.namespace_no = at.namespace_no AND s.claimable
                    AND s.task_type IN ('timeout', 'remove') AND s.scheduled_time <= at.now
                ORDER BY s.scheduled_time, s.task_id
                LIMIT %(most)s::bigint
            )
            UNION ALL
            (
                SELECT s.held_time
                FROM progressor.schedule AS s
                WHERE s.namespace_no = at.namespace_no AND s.group_no IS NULL AND s.held_time <= at.now
                ORDER BY s.group_no, s.held_time, s.task_id
                LIMIT %(most)s::bigint
            )
            LIMIT %(most)s::bigint
        ) AS t
    ) AS timers
