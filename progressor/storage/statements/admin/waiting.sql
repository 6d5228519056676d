-- The requests that wait in a namespace, also behind others: a bounded count, how long the oldest has
-- waited, and the processes on which most of them wait. A request waits behind a running step, or behind
-- the first request of its process, which can be claimed or is held. So `running` (as many rows as all workers
-- have slots) and these heads lead to every mailbox, and no mailbox is read beyond `most` rows.
--
--   head       the first request of each mailbox: of all processes that run, and the oldest `heads` that can be
--              claimed, and that are held
--   mailbox    its requests, counted up to `most`; its rank by depth and by age
WITH head AS MATERIALIZED (
    SELECT r.process_no, h.task_id, h.scheduled_time, FALSE AS is_claimable
    FROM progressor.running AS r
    CROSS JOIN LATERAL (
        SELECT s.task_id, s.scheduled_time, s.namespace_no
        FROM progressor.schedule AS s
        WHERE s.process_no = r.process_no AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ORDER BY s.task_id
        LIMIT 1
    ) AS h
    WHERE
        h.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
        )
    UNION ALL
    (
        SELECT s.process_no, s.task_id, s.scheduled_time, TRUE AS is_claimable
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            )
            AND s.claimable
            AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ORDER BY coalesce(s.order_time, s.scheduled_time), s.task_id
        LIMIT %(heads)s::bigint
    )
    UNION ALL
    (
        SELECT s.process_no, s.task_id, s.scheduled_time, TRUE AS is_claimable
        FROM (
            SELECT s.process_no, s.task_id, s.scheduled_time, s.task_type
            FROM progressor.schedule AS s
            WHERE
                s.namespace_no = (
                    SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
                )
                AND s.held_time IS NOT NULL
            ORDER BY s.group_no, s.held_time, s.task_id
            LIMIT %(heads)s::bigint
        ) AS s
        WHERE s.task_type IN ('init', 'call', 'notify', 'repair')
    )
),

mailbox AS MATERIALIZED (
    SELECT
        head.process_no,
        head.scheduled_time,
        head.is_claimable,
        counted.requests,
        row_number() OVER (ORDER BY counted.requests DESC, head.scheduled_time, head.task_id) AS by_depth,
        row_number() OVER (ORDER BY head.scheduled_time, head.task_id) AS by_age
    FROM head
    CROSS JOIN LATERAL (
        SELECT count(*) AS requests
        FROM (
            SELECT FROM progressor.schedule AS s
            WHERE s.process_no = head.process_no AND s.task_type IN ('init', 'call', 'notify', 'repair')
            ORDER BY s.task_id
            LIMIT %(most)s::bigint
        ) AS s
    ) AS counted
)

SELECT
    coalesce(%(now)s::timestamptz, now()) AS now,
    total.requests,
    total.oldest,
    total.at_least,
    deepest.process_no,
    deepest.requests AS counted
FROM (
    SELECT
        coalesce(sum(m.requests), 0)::bigint AS requests,
        min(m.scheduled_time) AS oldest,
        -- True if an unlisted mailbox reaches `most`, or if there may be more mailboxes.
        coalesce(bool_or(m.requests = %(most)s::bigint AND m.by_depth > %(deepest)s::bigint AND m.by_age > 1), FALSE)
        OR count(*) FILTER (WHERE m.is_claimable) >= %(heads)s::bigint AS at_least
    FROM mailbox AS m
) AS total
LEFT JOIN mailbox AS deepest
    ON deepest.by_depth <= %(deepest)s::bigint OR deepest.by_age = 1
ORDER BY deepest.by_depth
