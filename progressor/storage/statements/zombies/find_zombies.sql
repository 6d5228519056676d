-- collect_zombies, first: running tasks whose worker was silent for a lease (or has no row), and those that
-- outlived their worker's step_timeout + grace. Their processes' rows are locked; a row that others hold is
-- left for the next round.
-- All ages are as of `at`, the collector's own last renewal, and count from `since`, when writes began to
-- get through. Where that renewal is missing, because a standby was promoted that had not received it,
-- those of the workers may be missing too: then nobody is judged.
-- Their tasks are not read here, so that an unreadable one does not keep the others from being found.
WITH evidence AS (
    SELECT
    FROM progressor.workers AS own
    WHERE
        own.worker_id = %(collector)s::bigint AND own.beats >= %(beats)s::bigint
        AND %(since)s::timestamptz <= %(at)s::timestamptz - %(lease_age)s::interval
),

-- Locked, so that no worker renews its row before the verdict is committed. A row that others hold is being
-- renewed just now, however long that takes.
silent AS MATERIALIZED (
    SELECT w.worker_id
    FROM progressor.workers AS w
    WHERE
        greatest(w.seen_at, %(since)s::timestamptz)
        < %(at)s::timestamptz - greatest(w.lease_age, %(lease_age)s::interval)
    FOR NO KEY UPDATE OF w SKIP LOCKED
)

SELECT
    n.name AS namespace,
    p.process_id,
    r.process_no,
    r.task_id,
    r.task_type,
    r.worker_id,
    r.lease,
    r.running_time,
    w.seen_at,
    greatest(w.lease_age, %(lease_age)s::interval) AS lease_age,
    own.step_timeout,
    s.worker_id IS NOT NULL AS is_silent,
    n.options -> 'on_zombie' AS on_zombie,
    n.options -> 'zombie_attempts' AS zombie_attempts,
    n.options -> 'retry_policy' AS retry_policy
FROM progressor.running AS r
JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[r.process_no])
JOIN progressor.namespaces AS n ON n.namespace_no = ANY (ARRAY[p.namespace_no])
LEFT JOIN progressor.workers AS w ON w.worker_id = ANY (ARRAY[r.worker_id])
LEFT JOIN silent AS s ON s.worker_id = r.worker_id
CROSS JOIN LATERAL (
    SELECT
        greatest(r.running_time, %(since)s::timestamptz) AS begin_at,
        w.step_timeouts[array_position(w.namespaces, n.name)] AS step_timeout
) AS own
WHERE
    EXISTS (SELECT FROM evidence)
    -- The place where a round that takes zombies one by one goes on.
    AND r.process_no + 0 > %(after)s::bigint
    -- No younger task can be a zombie, and most running tasks are younger.
    AND r.running_time
    < %(at)s::timestamptz - least(%(lease_age)s::interval, %(grace)s::interval)
    AND (
        (
            (s.worker_id IS NOT NULL OR w.worker_id IS NULL)
            AND own.begin_at < %(at)s::timestamptz - greatest(w.lease_age, %(lease_age)s::interval)
        )
        OR own.begin_at + own.step_timeout + %(grace)s::interval < %(at)s::timestamptz
    )
-- Not a plain column, or the planner would read the index in its order.
ORDER BY r.process_no + 0
LIMIT %(limit)s::bigint
FOR NO KEY UPDATE OF p SKIP LOCKED
