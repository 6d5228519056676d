-- save_result, after the lock: end the steps whose running row is still held (the fence: task, worker,
-- lease), and put the next task of each process in its place. All parts read the state from before this
-- statement. If a process breaks, is removed or begins anew, cancel_waiting, remove or restart_init came
-- before, behind the same fence. A row is found once, in `item`, and changed by its place.
--
-- If no step of a batch says what becomes of a timer or breaks, holds or removes its process, and none is
-- followed by a pause, save_result_timeless is sent: this file without the parts marked for these, and with
-- those marked timeless and pauseless. The earliest timer and the first call are found there too.
--
--   item     the step, behind the fence: its process, the timer of the name that it changes (old_timer), the
--            earliest of the others (head), and the first call that waits. Waiting calls are younger than the
--            running task, so the search skips the calls that ended before. An init that runs anew is the
--            exception: restart_init put it back, and the repair that runs is younger
-- [timers
--   timed    new_timer: the timer that this step sets (replace), or that is held in place of the one that
--            broke the process (break); new_due: when that, or the task of this step, is due (retry)
--   ranked   is_first: whether that timer comes before all others; due: when the first timer is due
-- timers]
--   placed   next_id: the task that runs at once: the first waiting call, else a timer that is due; held_time:
--            the end of the pause after this step, if the next task would come before it
--
--   process, event                                      the handler's changes
-- [feeds
--   fed                                                 what the feed gets
-- feeds]
-- [timers
--   ended_task, cancelled_timer, started_task,          the tasks that ended, began or are new
--   new_timer_task
--   unscheduled, scheduled, resumed                     the changes of the schedule
-- timers]
-- [timeless
--   ended_task, started_task                            the tasks that ended or began
--   unscheduled, resumed                                the changes of the schedule
-- timeless]
--   continued, released                                 the running rows that go on or are deleted
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        -- [pauses
        coalesce(%(now)s::timestamptz, statement_timestamp())
        + (%(pause)s::bigint[])[i.ord] * interval '1 microsecond' AS rests_until,
        -- pauses]
        r.place AS running_place,
        -- [timers
        r.task_type,
        -- timers]
        p.place AS process_place,
        p.namespace_no,
        p.group_no,
        p.namespace_no = ANY (
            ARRAY(SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.paused)
        ) AS paused,
        -- [timers
        i.timer_type::progressor.task_type AS new_timer_type,
        old_timer.place AS old_timer_place,
        old_timer.task_id AS old_timer_id,
        head.scheduled_time AS head_due,
        -- timers]
        -- [timeless
        head.scheduled_time AS due,
        -- timeless]
        head.place AS head_place,
        head.task_id AS head_id,
        head.task_type AS head_type,
        call.place AS call_place,
        call.task_id AS call_id,
        call.task_type AS call_type
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        -- [timers
        %(disposition)s::text[], %(timer)s::text[], %(timer_type)s::text[], %(timer_at)s::timestamptz[],
        %(delay)s::bigint[],
        -- timers]
        %(status)s::text[], %(aux_state)s::bytea[], %(process_metadata)s::jsonb[],
        %(last_event_id)s::bigint[], %(response)s::bytea[], %(error)s::text[], %(keeps_slot)s::boolean[]
    ) WITH ORDINALITY AS i (
        process_no, task_id, worker_id, lease,
        -- [timers
        disposition, timer, timer_type, timer_at,
        delay,
        -- timers]
        status, aux_state, metadata,
        last_event_id, response, error, keeps_slot, ord
    )
    -- include held
    -- A left join: a process that is removed in this transaction has no row any more.
    LEFT JOIN LATERAL (
        SELECT p.ctid AS place, p.namespace_no, p.group_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p ON TRUE
    -- [timers
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.task_id
        FROM progressor.schedule AS s
        WHERE s.process_no + 0 = i.process_no AND s.timer = i.timer AND s.task_type IN ('timeout', 'remove')
        OFFSET 0
    ) AS old_timer ON TRUE
    -- timers]
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.task_id, s.task_type, s.scheduled_time
        FROM progressor.schedule AS s
        WHERE
            s.process_no + 0 = i.process_no AND s.task_type IN ('timeout', 'remove')
            -- [timers
            AND s.timer IS DISTINCT FROM i.timer
            -- timers]
        ORDER BY s.scheduled_time, s.task_id
        LIMIT 1
    ) AS head ON TRUE
    LEFT JOIN LATERAL (
        SELECT s.ctid AS place, s.task_id, s.task_type
        FROM progressor.schedule AS s
        WHERE
            s.process_no = i.process_no
            AND s.task_id > CASE i.status WHEN 'init' THEN 0 ELSE i.task_id END
            AND s.task_type IN ('init', 'call', 'notify', 'repair')
            -- [timers
            AND i.disposition NOT IN ('break', 'hold', 'remove')
            -- timers]
        ORDER BY s.task_id
        LIMIT 1
    ) AS call ON TRUE
),

-- [timers
timed AS (
    SELECT
        item.*,
        CASE WHEN new_timer_type IS NOT NULL THEN nextval('progressor.tasks_task_id_seq') END AS new_timer_id,
        CASE
            WHEN disposition = 'retry' THEN now + delay * interval '1 microsecond'
            WHEN new_timer_type IS NOT NULL
                THEN coalesce(timer_at, now + delay * interval '1 microsecond')
        END AS new_due,
        -- Of a timer that is fired by hand: those of the one that it replaces, to be run however late.
        CASE
            WHEN (%(timer_args)s::bytea[])[ord] = '' THEN (
                SELECT decode(replace(encode(t.args, 'escape'), '"begun":false', '"begun":true'), 'escape')
                FROM progressor.tasks AS t
                WHERE t.process_no = item.process_no AND t.task_id = item.old_timer_id
            )
            ELSE (%(timer_args)s::bytea[])[ord]
        END AS new_timer_args
    FROM item
    OFFSET 0
),

ranked AS (
    SELECT
        timed.*,
        is_first,
        CASE
            WHEN disposition IN ('break', 'hold', 'remove') THEN NULL
            WHEN is_first THEN new_due
            ELSE head_due
        END AS due
    FROM timed
    CROSS JOIN LATERAL (
        -- At the same time the older task comes first, and a new one is younger than all others.
        SELECT new_due IS NOT NULL AND coalesce(
            (new_due, coalesce(new_timer_id, task_id)) < (head_due, head_id), TRUE
        ) AS is_first
    ) AS first
),

-- timers]
placed AS MATERIALIZED (
    SELECT
        i.*,
        CASE
            WHEN NOT keeps_slot OR paused THEN NULL
            WHEN call_id IS NOT NULL THEN call_id
            -- [timers
            -- A task that is tried again is claimed again.
            WHEN due <= now AND is_first THEN new_timer_id
            -- timers]
            WHEN due <= now THEN head_id
        END AS next_id,
        -- [pauses
        CASE WHEN call_id IS NOT NULL OR due < rests_until THEN rests_until END
        -- pauses]
        -- [pauseless
        NULL::timestamptz
        -- pauseless]
        AS held_time
    FROM
        -- [timers
        ranked
        -- timers]
        -- [timeless
        item
        -- timeless]
        AS i
),

process AS (
    UPDATE progressor.processes AS p
    SET
        detail = CASE WHEN i.status = 'error' THEN i.error END,
        corrupted_by = CASE WHEN i.status = 'error' THEN i.task_id END,
        rests_until =
        -- [pauses
        i.rests_until,
        -- pauses]
        -- [pauseless
        NULL,
        -- pauseless]
        -- include process_changes
    FROM item AS i
    WHERE
        i.status IS NOT NULL AND p.ctid = i.process_place
        AND (
            -- [pauses
            i.rests_until IS NOT NULL OR
            -- pauses]
            -- include process_changed
        )
),

event AS (
    -- include new_events
    WHERE e.process_no = ANY (ARRAY(SELECT i.process_no FROM item AS i))
),

-- [feeds
fed AS (
    -- include new_feed
),

-- feeds]
ended_task AS (
    UPDATE progressor.tasks AS t
    SET
        status = CASE
            -- [timers
            WHEN i.disposition = 'retry' THEN 'waiting'
            -- timers]
            WHEN i.error IS NULL THEN 'finished'
            ELSE 'error'
        END::progressor.task_status,
        -- [timers
        finished_time = CASE WHEN i.disposition <> 'retry' THEN i.now END,
        scheduled_time = CASE WHEN i.disposition = 'retry' THEN i.new_due ELSE t.scheduled_time END,
        attempts_count = CASE
            WHEN i.disposition = 'retry' THEN coalesce(t.attempts_count, 0) + 1
            ELSE t.attempts_count
        END,
        last_retry_interval = CASE
            WHEN i.disposition = 'retry' THEN i.delay * interval '1 microsecond'
            ELSE t.last_retry_interval
        END,
        -- timers]
        -- [timeless
        finished_time = i.now,
        -- timeless]
        response = i.response,
        error = i.error
    FROM placed AS i
    WHERE
        t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.task_id
        )
),

-- [timers
cancelled_timer AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'cancelled', finished_time = i.now,
        error = CASE WHEN i.disposition = 'cancel' THEN 'timer unset' ELSE 'timer replaced' END
    FROM placed AS i
    WHERE
        i.old_timer_id IS NOT NULL
        AND t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.old_timer_id
        )
),

-- timers]
started_task AS (
    UPDATE progressor.tasks AS t
    SET status = 'running', running_time = i.now, worker_id = i.worker_id, lease = i.lease + 1
    FROM placed AS i
    WHERE
        i.next_id IS NOT NULL
        -- [timers
        AND i.next_id IS DISTINCT FROM i.new_timer_id
        -- timers]
        AND t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.next_id
        )
),

-- [timers
new_timer_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, name, args, status, scheduled_time, running_time, worker_id, lease, trace
    )
    SELECT
        process_no, new_timer_id, new_timer_type, nullif(timer, ''), new_timer_args,
        CASE WHEN next_id = new_timer_id THEN 'running' ELSE 'waiting' END::progressor.task_status,
        new_due,
        CASE WHEN next_id = new_timer_id THEN now END,
        CASE WHEN next_id = new_timer_id THEN worker_id END,
        CASE WHEN next_id = new_timer_id THEN lease + 1 END,
        (%(timer_trace)s::text[])[ord]
    FROM placed
    WHERE new_timer_id IS NOT NULL
),

-- timers]
unscheduled AS (
    DELETE FROM progressor.schedule AS s
    USING placed AS i
    CROSS JOIN LATERAL (
        VALUES
        -- [timers
        (i.old_timer_place),
        -- timers]
        (CASE i.next_id WHEN i.call_id THEN i.call_place WHEN i.head_id THEN i.head_place END)
    ) AS gone (place)
    WHERE s.ctid = gone.place
    -- [timers
    RETURNING s.task_id
    -- timers]
),

-- [timers
scheduled AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable, held_time
    )
    SELECT
        process_no,
        CASE WHEN disposition = 'retry' THEN task_id ELSE new_timer_id END,
        namespace_no,
        CASE WHEN disposition = 'retry' THEN task_type ELSE new_timer_type END,
        timer,
        new_due,
        is_first AND call_id IS NULL AND disposition <> 'break' AND held_time IS NULL,
        CASE WHEN is_first AND call_id IS NULL THEN held_time END
    FROM placed
    WHERE
        (disposition = 'retry' OR new_timer_id <> coalesce(next_id, 0))
        -- The old timer must be deleted first: a process has one timer of a name.
        AND (SELECT count(*) FROM unscheduled) >= 0
),

-- timers]
resumed AS (
    UPDATE progressor.schedule AS s
    SET
        claimable = i.held_time IS NULL AND (i.call_id IS NULL OR i.group_no IS NULL),
        (order_time, held_time) = (
            SELECT
                urgent.order_time,
                coalesce(i.held_time, CASE WHEN i.group_no IS NOT NULL THEN urgent.order_time END)
            FROM (
                SELECT
                    CASE WHEN i.call_id IS NOT NULL THEN
                        -- include most_urgent
                    END AS order_time
                OFFSET 0
            ) AS urgent
        ),
        group_no = CASE WHEN i.call_id IS NOT NULL AND i.held_time IS NULL THEN i.group_no END
    FROM placed AS i
    WHERE
        i.next_id IS NULL
        AND s.ctid = CASE
            WHEN i.call_id IS NOT NULL THEN i.call_place
            WHEN
                i.due IS NOT NULL
                -- [timers
                AND NOT i.is_first
                -- timers]
                THEN i.head_place
        END
),

continued AS (
    UPDATE progressor.running AS r
    SET
        task_id = i.next_id,
        task_type = CASE i.next_id
            WHEN i.call_id THEN i.call_type
            -- [timers
            WHEN i.new_timer_id THEN i.new_timer_type
            -- timers]
            ELSE i.head_type
        END,
        lease = r.lease + 1,
        running_time = i.now
    FROM placed AS i
    WHERE i.next_id IS NOT NULL AND r.ctid = i.running_place
),

released AS (
    DELETE FROM progressor.running AS r
    USING placed AS i
    WHERE i.next_id IS NULL AND r.ctid = i.running_place
)

SELECT
    i.ord,
    i.now,
    CASE
        -- [pauses
        -- A request that comes meanwhile is held until then, and nobody else wakes this worker for it.
        WHEN i.rests_until IS NOT NULL AND i.disposition NOT IN ('hold', 'remove') THEN i.rests_until
        -- pauses]
        WHEN i.next_id IS NULL AND i.call_id IS NULL THEN i.due
    END AS due,
    i.next_id,
    CASE i.next_id
        WHEN i.call_id THEN i.call_type
        -- [timers
        WHEN i.new_timer_id THEN i.new_timer_type
        -- timers]
        ELSE i.head_type
    END AS next_type,
    -- [timers
    CASE i.next_id WHEN i.new_timer_id THEN nullif(i.timer, '') ELSE t.name END AS name,
    CASE i.next_id WHEN i.new_timer_id THEN i.new_timer_args ELSE t.args END AS args,
    CASE i.next_id WHEN i.new_timer_id THEN (%(timer_trace)s::text[])[i.ord] ELSE t.trace END AS trace,
    -- timers]
    -- [timeless
    t.name,
    t.args,
    t.trace,
    -- timeless]
    t.context,
    t.reply_to,
    t.idempotency_key,
    t.request_hash,
    coalesce(t.scheduled_time, i.due) AS scheduled_time,
    t.last_retry_interval,
    t.attempts_count,
    t.expires_at
FROM placed AS i
LEFT JOIN LATERAL (
    SELECT
        t.name, t.args, t.context, t.reply_to, t.idempotency_key, t.request_hash, t.scheduled_time,
        t.last_retry_interval, t.attempts_count, t.expires_at, t.trace
    FROM progressor.tasks AS t
    WHERE
        t.process_no = i.process_no
        -- [timers
        -- A new timer cannot be read yet: do not look for it.
        AND t.task_id = CASE WHEN i.next_id IS DISTINCT FROM i.new_timer_id THEN i.next_id END
        -- timers]
        -- [timeless
        AND t.task_id = i.next_id
        -- timeless]
    OFFSET 0
) AS t ON TRUE
