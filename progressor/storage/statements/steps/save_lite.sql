-- save_lite, after the lock: saves the most common steps as save_result does, in fewer parts. They ended
-- well and leave their process running, with a new timer or none; and nothing waits on it, neither a call
-- nor a timer that was blocked. A step that found something waiting, or lost its lease, has no row, and
-- nothing of it was done: save_result tells the two apart. Parts of the same names do the same there.
--
--   item     the step, behind the fence; due: when its new timer is due
--   placed   next_id: its new timer, if that runs at once; held_time: as there
--
--   process, event                                      the handler's changes
-- [feeds
--   fed                                                 what the feed gets
-- feeds]
--   ended_task, new_timer_task                          the tasks that ended or are new
--   scheduled                                           the new timer that waits
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
        p.place AS process_place,
        p.namespace_no,
        p.namespace_no = ANY (
            ARRAY(SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.paused)
        ) AS paused,
        i.timer_type::progressor.task_type AS new_timer_type,
        CASE WHEN i.timer_type IS NOT NULL THEN nextval('progressor.tasks_task_id_seq') END AS new_timer_id,
        CASE
            WHEN i.timer_type IS NOT NULL THEN coalesce(
                i.timer_at,
                coalesce(%(now)s::timestamptz, statement_timestamp()) + i.delay * interval '1 microsecond'
            )
        END AS due
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        %(status)s::text[], %(aux_state)s::bytea[], %(process_metadata)s::jsonb[],
        %(last_event_id)s::bigint[], %(response)s::bytea[], %(timer)s::text[], %(timer_type)s::text[],
        %(timer_at)s::timestamptz[], %(delay)s::bigint[], %(keeps_slot)s::boolean[]
    ) WITH ORDINALITY AS i (
        process_no, task_id, worker_id, lease,
        status, aux_state, metadata,
        last_event_id, response, timer, timer_type,
        timer_at, delay, keeps_slot, ord
    )
    -- include held
    CROSS JOIN LATERAL (
        SELECT p.ctid AS place, p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
    WHERE
        NOT EXISTS (
            SELECT FROM progressor.schedule AS s WHERE s.process_no = i.process_no OFFSET 0
        )
),

placed AS MATERIALIZED (
    SELECT
        item.*,
        CASE WHEN keeps_slot AND NOT paused AND due <= now THEN new_timer_id END AS next_id,
        -- [pauses
        CASE WHEN due < rests_until THEN rests_until END
        -- pauses]
        -- [pauseless
        NULL::timestamptz
        -- pauseless]
        AS held_time
    FROM item
),

process AS (
    UPDATE progressor.processes AS p
    SET
        detail = NULL,
        corrupted_by = NULL,
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
        p.ctid = i.process_place
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
    -- A retried timer keeps the error of its last try until here.
    SET status = 'finished', finished_time = i.now, response = i.response, error = NULL
    FROM item AS i
    WHERE
        t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.task_id
        )
),

new_timer_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, name, args, status, scheduled_time, running_time, worker_id, lease, trace
    )
    SELECT
        process_no, new_timer_id, new_timer_type, nullif(timer, ''), (%(timer_args)s::bytea[])[ord],
        CASE WHEN next_id IS NULL THEN 'waiting' ELSE 'running' END::progressor.task_status,
        due,
        CASE WHEN next_id IS NOT NULL THEN now END,
        CASE WHEN next_id IS NOT NULL THEN worker_id END,
        CASE WHEN next_id IS NOT NULL THEN lease + 1 END,
        (%(timer_trace)s::text[])[ord]
    FROM placed
    WHERE new_timer_id IS NOT NULL
),

scheduled AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable, held_time
    )
    SELECT
        process_no, new_timer_id, namespace_no, new_timer_type, timer, due, held_time IS NULL, held_time
    FROM placed
    WHERE new_timer_id IS NOT NULL AND next_id IS NULL
),

continued AS (
    UPDATE progressor.running AS r
    SET task_id = i.next_id, task_type = i.new_timer_type, lease = r.lease + 1, running_time = i.now
    FROM placed AS i
    WHERE i.next_id IS NOT NULL AND r.ctid = i.running_place
),

released AS (
    DELETE FROM progressor.running AS r
    USING placed AS i
    WHERE i.next_id IS NULL AND r.ctid = i.running_place
)

SELECT
    ord, now, next_id,
    coalesce(
        -- [pauses
        rests_until,
        -- pauses]
        due
    ) AS due
FROM placed
