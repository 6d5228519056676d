-- End processes, and return the waiting tasks whose callers must be notified.
-- With a task_id it is the end of that step, if its running row, the fence, is still held; that row and the
-- task's stay for save_result, which comes next. The process's number is then kept for a day, with the task
-- and the answers of the last day: a caller may not have read its answer yet, and a repeated start must not
-- begin a second life. Where no caller can ask, as after a timer, ten minutes are enough: a save that is
-- repeated after a lost answer looks for the number.
-- Without a task_id a caller wants the process of this birth forgotten, keys and all. If a step of its own
-- has ended it meanwhile, there is nothing to forget, and what that step kept stays. Number and birth are
-- kept for a day, so that a caller that asks for an answer learns that the process was removed.
-- A large process ends as fast as a small one: the requests that wait on it go with it; its events and its
-- finished tasks stay under its number, which no other life will have, and drop_leftovers deletes them in
-- pieces. It is large by its number of rows, or by 64 MiB of events or tasks; the few events of a small one
-- are not looked at. Of a long mailbox the oldest requests go here, with the one that could be claimed;
-- drop_leftovers deletes the others too.
-- A request by name looks at the earlier lives of that name. From the 17th on a life that ends is no longer
-- looked at, and its answers are found by their keys; except a life of more than 1,000 tasks, as no name
-- has many of these.
--
--   item                  the process, behind the fence if there is one, whether it is large, and up to which
--                         task its mailbox goes here
--   process               the process, which ends here
--   kept                  its number, for as long as a caller may ask for an answer of it
--   answer                the keys of these answers, where its name had many lives
--   fed                   its number, if readers of a feed may still ask for its events
--   told                  the row of the feed that says that a caller removed it
--   event                 its history
--   waiting, step         the tasks that wait on it, and the one that runs, unless its own step ends it
--   unanswered            their rows in tasks, with the callers to be notified
--   answered              the tasks whose answers no caller may ask for any more
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        p.last_event_id,
        p.birth AS known_birth,
        task.has_many,
        p.last_event_id > 1000 OR task.has_many OR task.are_large OR p.last_event_id > 16 AND (
            SELECT sum(octet_length(e.payload)) > 64 * 1024 * 1024
            FROM progressor.events AS e
            WHERE e.process_no = i.process_no
        ) IS TRUE AS is_large,
        CASE
            WHEN task.has_many THEN (
                SELECT max(first.task_id)
                FROM (
                    SELECT s.task_id
                    FROM progressor.schedule AS s
                    WHERE s.process_no = i.process_no
                    ORDER BY s.task_id
                    LIMIT %(most)s::bigint
                ) AS first
            )
        END AS up_to,
        coalesce(%(now)s::timestamptz, now()) AS now
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        %(birth)s::bigint[], %(feeds)s::boolean[]
    ) AS i (process_no, task_id, worker_id, lease, birth, feeds)
    CROSS JOIN LATERAL (
        SELECT p.last_event_id, p.birth
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT count(*) > 1000 AS has_many, coalesce(sum(first.bytes) > 64 * 1024 * 1024, FALSE) AS are_large
        FROM (
            SELECT
                coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0)
                + coalesce(octet_length(t.response), 0) AS bytes
            FROM progressor.tasks AS t
            WHERE t.process_no = i.process_no
            LIMIT 1001
        ) AS first
    ) AS task
    WHERE
        i.task_id IS NULL AND p.birth IS NOT DISTINCT FROM i.birth
        OR EXISTS (
            SELECT FROM progressor.running AS r
            WHERE
                r.process_no = i.process_no AND r.task_id = i.task_id AND r.lease = i.lease
                AND r.worker_id IS NOT DISTINCT FROM i.worker_id
            OFFSET 0
        )
),

process AS (
    DELETE FROM progressor.processes AS p
    USING item AS i
    WHERE p.process_no = ANY (ARRAY[i.process_no])
    RETURNING p.namespace_no, p.process_id, i.*
),

kept AS (
    INSERT INTO progressor.removed_processes (
        process_no, kept_until, namespace, process_id, has_events, birth, has_requests, by_key
    )
    SELECT
        p.process_no,
        p.now + CASE
            -- The rows that a large one leaves are deleted soon.
            WHEN p.task_id IS NULL THEN CASE WHEN p.is_large THEN interval '0' ELSE interval '1 day' END
            WHEN p.is_large OR EXISTS (
                SELECT FROM progressor.tasks AS t
                WHERE
                    t.process_no + 0 = p.process_no AND t.idempotency_key IS NOT NULL
                    AND (t.task_id = p.task_id OR t.finished_time >= p.now - interval '1 day')
                OFFSET 0
            ) THEN interval '1 day'
            ELSE interval '10 minutes'
        END,
        -- Without a name no request finds it by a key.
        CASE WHEN p.task_id IS NOT NULL THEN n.name END,
        CASE WHEN p.task_id IS NOT NULL THEN p.process_id END,
        p.is_large AND NOT p.feeds AND p.last_event_id > 0,
        p.known_birth,
        p.up_to IS NOT NULL AND EXISTS (
            SELECT FROM progressor.schedule AS s
            WHERE s.process_no = p.process_no AND s.task_id > p.up_to
            OFFSET 0
        ),
        p.task_id IS NOT NULL AND NOT p.has_many AND EXISTS (
            SELECT FROM progressor.removed_processes AS r
            WHERE r.namespace = n.name AND r.process_id = p.process_id AND NOT r.by_key
            OFFSET 16 - 1
        )
    FROM process AS p
    JOIN progressor.namespaces AS n ON n.namespace_no = ANY (ARRAY[p.namespace_no])
    RETURNING process_no, namespace, process_id, birth, by_key
),

answer AS (
    INSERT INTO progressor.kept_answers (
        process_no, task_id, birth, namespace, process_id, idempotency_key
    )
    SELECT t.process_no, t.task_id, k.birth, k.namespace, k.process_id, t.idempotency_key
    FROM kept AS k
    JOIN item AS i ON i.process_no = k.process_no
    CROSS JOIN LATERAL (
        SELECT t.process_no, t.task_id, t.idempotency_key
        FROM progressor.tasks AS t
        WHERE
            t.process_no + 0 = k.process_no AND t.idempotency_key IS NOT NULL
            AND (
                t.task_id = i.task_id
                OR t.finished_time >= CASE WHEN i.is_large THEN '-infinity' ELSE i.now - interval '1 day' END
            )
        OFFSET 0
    ) AS t
    WHERE k.by_key
),

fed AS (
    INSERT INTO progressor.feed_leftovers (process_no, kept_until)
    SELECT p.process_no, p.now + interval '7 days'
    FROM process AS p
    WHERE p.feeds
),

told AS (
    INSERT INTO progressor.feed (
        appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids, event_counts
    )
    SELECT
        p.now, n.name, 'r', ARRAY[p.process_no], ARRAY[p.process_id], ARRAY[NULL::bigint],
        ARRAY[p.last_event_id], ARRAY[0]
    FROM process AS p
    JOIN progressor.namespaces AS n
        ON n.namespace_no = ANY (ARRAY[p.namespace_no]) AND (n.options ->> 'feed')::boolean
    -- A step tells of itself.
    WHERE p.task_id IS NULL
),

event AS (
    DELETE FROM progressor.events AS e
    USING item AS i
    WHERE NOT i.is_large AND NOT i.feeds AND e.process_no = ANY (ARRAY[i.process_no])
),

waiting AS (
    DELETE FROM progressor.schedule AS s
    USING item AS i
    WHERE s.process_no = ANY (ARRAY[i.process_no]) AND (i.up_to IS NULL OR s.task_id <= i.up_to)
    RETURNING s.process_no, s.task_id
),

step AS (
    DELETE FROM progressor.running AS r
    USING item AS i
    WHERE i.task_id IS NULL AND r.process_no = ANY (ARRAY[i.process_no])
    RETURNING r.process_no, r.task_id
),

unanswered AS (
    DELETE FROM progressor.tasks AS t
    USING (SELECT w.* FROM waiting AS w UNION ALL SELECT s.* FROM step AS s) AS u
    WHERE t.process_no = ANY (ARRAY[u.process_no]) AND t.task_id = u.task_id
    RETURNING t.process_no, t.task_id, t.reply_to
),

answered AS (
    DELETE FROM progressor.tasks AS t
    USING item AS i
    WHERE
        NOT i.is_large AND t.process_no = ANY (ARRAY[i.process_no]) AND t.finished_time IS NOT NULL
        AND (i.task_id IS NULL OR t.idempotency_key IS NULL OR t.finished_time < i.now - interval '1 day')
)

-- Callers that are not notified find out by their own poll, a little later.
SELECT u.process_no, u.task_id, u.reply_to
FROM unanswered AS u
WHERE u.reply_to IS NOT NULL
LIMIT 1000
