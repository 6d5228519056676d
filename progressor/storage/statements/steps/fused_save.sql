-- Requests that were run in this transaction, which holds the locks of their processes: write their tasks
-- as finished, with the changes of their handlers. They were never in running, so there is no fence: no
-- other session could see them. Nothing waits on their processes but a timer, which was never blocked.
--
-- If no step of a batch touches a timer, fused_save_timeless is sent: this file without the marked parts. If
-- each touches the only timer of its process, fused_save_one_timer is: without the parts for several.
--
--   item     the request, its result, its process, and the timer that it replaces or cancels (old_timer)
-- [several
--   ranked   the earliest of its other timers (head); whether the new one comes before it
-- several]
--
--   process, event                                             the handler's changes
-- [feeds
--   fed                                                        what the feed gets
-- feeds]
-- [timers
--   cancelled_timer, new_timer_task, unscheduled, scheduled    the changes of the timer
-- [several
--   passed                                                     the head that is no more, or is again
-- several]
-- timers]
--   ended_task                                                 the task
--
-- Its rows come in any order, each with its place in the batch.
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        -- [timers
        p.namespace_no,
        i.timer_type::progressor.task_type AS new_timer_type,
        coalesce(
            i.timer_at,
            coalesce(%(now)s::timestamptz, statement_timestamp()) + i.delay * interval '1 microsecond'
        ) AS due,
        CASE WHEN i.timer_type IS NOT NULL THEN nextval('progressor.tasks_task_id_seq') END AS new_timer_id,
        old_timer.place AS old_timer_place,
        old_timer.task_id AS old_timer_id,
        -- timers]
        p.place AS process_place
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        %(task_type)s::text[], %(name)s::text[], %(args)s::bytea[], %(idempotency_key)s::text[],
        %(request_hash)s::bytea[], %(context)s::bytea[], %(began)s::timestamptz[],
        -- [timers
        %(disposition)s::text[], %(timer)s::text[], %(timer_type)s::text[], %(timer_at)s::timestamptz[],
        %(delay)s::bigint[],
        -- timers]
        %(status)s::text[], %(aux_state)s::bytea[], %(process_metadata)s::jsonb[],
        %(last_event_id)s::bigint[], %(response)s::bytea[], %(error)s::text[]
    ) WITH ORDINALITY AS i (
        process_no, task_id, worker_id, lease,
        task_type, name, args, idempotency_key,
        request_hash, context, began,
        -- [timers
        disposition, timer, timer_type, timer_at,
        delay,
        -- timers]
        status, aux_state, metadata,
        last_event_id, response, error, ord
    )
    CROSS JOIN LATERAL (
        SELECT p.ctid AS place, p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
    -- [timers
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.task_id
        FROM progressor.schedule AS s
        WHERE
            s.process_no + 0 = i.process_no AND s.timer = i.timer AND s.task_type IN ('timeout', 'remove')
        OFFSET 0
    ) AS old_timer ON TRUE
    -- timers]
),

-- [several
ranked AS MATERIALIZED (
    SELECT
        i.process_no,
        head.place AS head_place,
        new_timer_id IS NOT NULL AND coalesce(due < head.scheduled_time, TRUE) AS is_first
    FROM item AS i
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.scheduled_time
        FROM progressor.schedule AS s
        WHERE
            s.process_no + 0 = i.process_no AND s.timer <> i.timer AND s.task_type IN ('timeout', 'remove')
        ORDER BY s.scheduled_time, s.task_id
        LIMIT 1
    ) AS head ON TRUE
),

-- several]
process AS (
    UPDATE progressor.processes AS p
    SET
        -- include process_changes
    FROM item AS i
    WHERE
        i.status IS NOT NULL AND p.ctid = i.process_place
        AND (
            -- [several
            -- A claim of another timer sees by this row that the timers have changed.
            i.old_timer_id IS NOT NULL OR i.new_timer_id IS NOT NULL OR
            -- several]
            -- include process_changed
        )
),

event AS (
    -- include new_events
),

-- [feeds
fed AS (
    -- include new_feed
),

-- feeds]
-- [timers
cancelled_timer AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'cancelled', finished_time = i.now,
        error = CASE WHEN i.disposition = 'cancel' THEN 'timer unset' ELSE 'timer replaced' END
    FROM item AS i
    WHERE
        i.old_timer_id IS NOT NULL
        AND t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.old_timer_id
        )
),

new_timer_task AS (
    INSERT INTO progressor.tasks (process_no, task_id, task_type, name, args, status, scheduled_time, trace)
    SELECT
        process_no, new_timer_id, new_timer_type, nullif(timer, ''), (%(timer_args)s::bytea[])[ord], 'waiting', due,
        (%(timer_trace)s::text[])[ord]
    FROM item
    WHERE new_timer_id IS NOT NULL
),

unscheduled AS (
    DELETE FROM progressor.schedule AS s
    USING item AS i
    WHERE s.ctid = i.old_timer_place
    RETURNING s.task_id
),

scheduled AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable
    )
    SELECT
        process_no, new_timer_id, namespace_no, new_timer_type, timer, due,
        -- [several
        (SELECT r.is_first FROM ranked AS r WHERE r.process_no = item.process_no) AND
        -- several]
        TRUE
    FROM item
    WHERE
        new_timer_id IS NOT NULL
        -- The old timer must be deleted first: a process has one timer of a name.
        AND (SELECT count(*) FROM unscheduled) >= 0
),

-- [several
passed AS (
    UPDATE progressor.schedule AS s
    SET claimable = NOT r.is_first
    FROM ranked AS r
    WHERE s.ctid = r.head_place AND s.claimable = r.is_first
),

-- several]
-- timers]

ended_task AS (
    -- Without reply_to: its caller gets the answer with the commit.
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time, finished_time,
        name, args, idempotency_key, request_hash, context, worker_id, lease, response, error,
        expires_at, priority, trace
    )
    SELECT
        process_no, task_id, task_type::progressor.task_type,
        CASE WHEN error IS NULL THEN 'finished' ELSE 'error' END::progressor.task_status,
        began, began, now,
        name, args, idempotency_key, request_hash, context, worker_id, lease, response, error,
        began + (%(expires)s::bigint[])[ord] * interval '1 microsecond', nullif((%(priority)s::bigint[])[ord], 0),
        (%(trace)s::text[])[ord]
    FROM item
)

SELECT
    -- [timers
    CASE WHEN new_timer_id IS NOT NULL THEN due END AS due,
    -- timers]
    ord, now
FROM item
