-- save_result, after the lock: end the steps whose running row is still held (the fence), and put the
-- next task of each process in its place. All parts read the state from before this statement. Where a
-- process breaks or is removed, cancel_waiting or remove have been there first, behind the same fence.
--   next_id     the task that runs at once: the first waiting call, else a timer that is due
--   new_timer   the timer that this step sets (continue), or that broke the process (rerun)
--   old_timer   the timer that was blocked under this step
WITH item AS MATERIALIZED (
    SELECT
        i.*,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now,
        r.task_type,
        i.namespace = ANY (ARRAY(SELECT n.name FROM namespaces AS n WHERE n.paused)) AS paused,
        CASE
            WHEN i.disposition = 'continue' THEN i.timer_type
            WHEN i.disposition = 'rerun' THEN (
                SELECT t.task_type
                FROM processes AS p
                JOIN tasks AS t
                    ON
                        t.namespace = ANY (ARRAY[p.namespace])
                        AND t.process_id = ANY (ARRAY[p.process_id])
                        AND t.task_id = p.corrupted_by
                WHERE
                    p.namespace = ANY (ARRAY[i.namespace])
                    AND p.process_id = ANY (ARRAY[i.process_id])
                    AND t.task_type IN ('timeout', 'remove')
            )
        END AS new_timer_type,
        old_timer.task_id AS old_timer_id,
        old_timer.task_type AS old_timer_type,
        old_timer.scheduled_time AS old_timer_due,
        call.task_id AS call_id,
        call.task_type AS call_type
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(task_id)s::bigint[],
        %(worker_id)s::text[], %(lease)s::bigint[], %(disposition)s::text[],
        %(status)s::text[], %(aux_state)s::bytea[], %(process_metadata)s::jsonb[],
        %(last_event_id)s::bigint[], %(response)s::bytea[], %(error)s::text[],
        %(timer_type)s::text[], %(timer_at)s::timestamptz[], %(delay)s::bigint[],
        %(keeps_slot)s::boolean[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, task_id,
        worker_id, lease, disposition,
        status, aux_state, process_metadata,
        last_event_id, response, error,
        timer_type, timer_at, delay,
        keeps_slot, ord
    )
    JOIN running AS r
        ON
            r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
            AND r.task_id = i.task_id AND r.lease = i.lease
            -- Not "=": the planner shall look the row up by its key, not by its worker.
            AND r.worker_id IS NOT DISTINCT FROM i.worker_id
    LEFT JOIN schedule AS old_timer
        ON
            old_timer.namespace = ANY (ARRAY[i.namespace])
            AND old_timer.process_id = ANY (ARRAY[i.process_id])
            AND old_timer.task_type IN ('timeout', 'remove')
    LEFT JOIN LATERAL (
        SELECT s.task_id, s.task_type
        FROM schedule AS s
        WHERE
            s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
            AND s.task_type IN ('init', 'call', 'notify', 'repair')
            AND i.disposition NOT IN ('fail', 'remove')
        ORDER BY s.task_id
        LIMIT 1
    ) AS call ON TRUE
),

timed AS MATERIALIZED (
    SELECT
        item.*,
        CASE WHEN new_timer_type IS NOT NULL THEN nextval('tasks_task_id_seq') END AS new_timer_id,
        CASE
            WHEN disposition = 'retry' THEN now + delay * interval '1 microsecond'
            WHEN disposition = 'continue'
                THEN coalesce(timer_at, now + delay * interval '1 microsecond')
            WHEN new_timer_type IS NOT NULL THEN now
            WHEN disposition IN ('unlock', 'rerun') THEN old_timer_due
        END AS due,
        disposition IN ('continue', 'suspend') OR new_timer_type IS NOT NULL AS drops_old_timer
    FROM item
),

placed AS MATERIALIZED (
    SELECT
        timed.*,
        CASE
            WHEN NOT keeps_slot OR paused THEN NULL
            WHEN call_id IS NOT NULL THEN call_id
            WHEN disposition <> 'retry' AND due <= now THEN coalesce(new_timer_id, old_timer_id)
        END AS next_id
    FROM timed
),

process AS (
    UPDATE processes AS p
    SET
        status = i.status,
        previous_status = CASE WHEN p.status = i.status THEN p.previous_status ELSE p.status END,
        status_changed_at = CASE WHEN p.status = i.status THEN p.status_changed_at ELSE i.now END,
        detail = CASE WHEN i.status = 'error' THEN i.error END,
        corrupted_by = CASE WHEN i.status = 'error' THEN i.task_id END,
        aux_state = coalesce(i.aux_state, p.aux_state),
        metadata = coalesce(i.process_metadata, p.metadata),
        last_event_id = i.last_event_id
    FROM placed AS i
    WHERE
        i.status IS NOT NULL
        AND p.namespace = ANY (ARRAY[i.namespace]) AND p.process_id = ANY (ARRAY[i.process_id])
),

event AS (
    INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, metadata, payload)
    SELECT
        e.namespace, e.process_id, e.event_id, e.task_id,
        coalesce(%(now)s::timestamptz, statement_timestamp()), e.metadata, e.payload
    FROM unnest(
        %(event_namespace)s::text[], %(event_process_id)s::text[], %(event_task_id)s::bigint[],
        %(event_worker_id)s::text[], %(event_lease)s::bigint[], %(event_id)s::bigint[],
        %(event_metadata)s::jsonb[], %(event_payload)s::bytea[]
    ) AS e (namespace, process_id, task_id, worker_id, lease, event_id, metadata, payload)
    JOIN running AS r
        ON
            r.namespace = ANY (ARRAY[e.namespace]) AND r.process_id = ANY (ARRAY[e.process_id])
            AND r.task_id = e.task_id AND r.lease = e.lease
            AND r.worker_id IS NOT DISTINCT FROM e.worker_id
),

ended_task AS (
    UPDATE tasks AS t
    SET
        status = CASE
            WHEN i.disposition = 'retry' THEN 'waiting'
            WHEN i.error IS NULL THEN 'finished'
            ELSE 'error'
        END,
        finished_time = CASE WHEN i.disposition <> 'retry' THEN i.now END,
        scheduled_time = CASE WHEN i.disposition = 'retry' THEN i.due ELSE t.scheduled_time END,
        attempts_count = t.attempts_count + (i.disposition = 'retry')::integer,
        last_retry_interval = CASE
            WHEN i.disposition = 'retry' THEN i.delay * interval '1 microsecond'
            ELSE t.last_retry_interval
        END,
        response = i.response,
        error = i.error
    FROM placed AS i
    WHERE
        t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND t.task_id = i.task_id
),

cancelled_timer AS (
    UPDATE tasks AS t
    SET
        status = 'cancelled', finished_time = i.now,
        error = CASE WHEN i.disposition = 'suspend' THEN 'timer unset' ELSE 'timer replaced' END
    FROM placed AS i
    WHERE
        i.drops_old_timer
        AND t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND t.task_id = i.old_timer_id
),

started_task AS (
    UPDATE tasks AS t
    SET status = 'running', running_time = i.now, worker_id = i.worker_id, lease = i.lease + 1
    FROM placed AS i
    WHERE
        t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        AND t.task_id = i.next_id AND i.next_id IS DISTINCT FROM i.new_timer_id
),

new_timer_task AS (
    INSERT INTO tasks (
        namespace, process_id, task_id, task_type, status, scheduled_time, running_time,
        worker_id, lease
    )
    SELECT
        namespace, process_id, new_timer_id, new_timer_type,
        CASE WHEN next_id = new_timer_id THEN 'running' ELSE 'waiting' END,
        due,
        CASE WHEN next_id = new_timer_id THEN now END,
        CASE WHEN next_id = new_timer_id THEN worker_id END,
        CASE WHEN next_id = new_timer_id THEN lease + 1 END
    FROM placed
    WHERE new_timer_id IS NOT NULL
),

unscheduled AS (
    DELETE FROM schedule AS s
    USING placed AS i
    WHERE
        s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
        AND s.task_id IN (
            CASE WHEN i.next_id IS DISTINCT FROM i.new_timer_id THEN i.next_id END,
            CASE WHEN i.drops_old_timer THEN i.old_timer_id END
        )
    RETURNING s.task_id
),

scheduled AS (
    INSERT INTO schedule (
        namespace, process_id, task_id, task_type, status, scheduled_time, claimable
    )
    SELECT
        namespace, process_id,
        CASE WHEN disposition = 'retry' THEN task_id ELSE new_timer_id END,
        CASE WHEN disposition = 'retry' THEN task_type ELSE new_timer_type END,
        CASE WHEN call_id IS NULL THEN 'waiting' ELSE 'blocked' END,
        due,
        call_id IS NULL
    FROM placed
    WHERE
        (disposition = 'retry' OR new_timer_id <> coalesce(next_id, 0))
        -- The old timer must be gone first: one timer per process.
        AND (SELECT count(*) FROM unscheduled) >= 0
),

resumed AS (
    UPDATE schedule AS s
    SET status = 'waiting', claimable = TRUE
    FROM placed AS i
    WHERE
        i.next_id IS NULL
        AND s.namespace = ANY (ARRAY[i.namespace]) AND s.process_id = ANY (ARRAY[i.process_id])
        AND s.task_id = CASE
            WHEN i.call_id IS NOT NULL THEN i.call_id
            WHEN NOT i.drops_old_timer AND i.disposition NOT IN ('fail', 'remove')
                THEN i.old_timer_id
        END
),

continued AS (
    UPDATE running AS r
    SET
        task_id = i.next_id,
        task_type = CASE i.next_id
            WHEN i.call_id THEN i.call_type
            WHEN i.new_timer_id THEN i.new_timer_type
            ELSE i.old_timer_type
        END,
        lease = r.lease + 1,
        running_time = i.now
    FROM placed AS i
    WHERE
        i.next_id IS NOT NULL
        AND r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
),

released AS (
    DELETE FROM running AS r
    USING placed AS i
    WHERE
        i.next_id IS NULL
        AND r.namespace = ANY (ARRAY[i.namespace]) AND r.process_id = ANY (ARRAY[i.process_id])
)

SELECT
    i.ord,
    i.now,
    CASE WHEN i.call_id IS NULL THEN i.due END AS due,
    i.next_id,
    CASE i.next_id
        WHEN i.call_id THEN i.call_type
        WHEN i.new_timer_id THEN i.new_timer_type
        ELSE i.old_timer_type
    END AS next_type,
    t.args,
    t.metadata,
    t.context,
    t.idempotency_key,
    coalesce(t.scheduled_time, i.due) AS scheduled_time,
    t.last_retry_interval,
    coalesce(t.attempts_count, 0) AS attempts_count
FROM placed AS i
LEFT JOIN tasks AS t
    ON
        t.namespace = ANY (ARRAY[i.namespace]) AND t.process_id = ANY (ARRAY[i.process_id])
        -- A new timer is not there yet to be read: do not look.
        AND t.task_id = CASE WHEN i.next_id IS DISTINCT FROM i.new_timer_id THEN i.next_id END
