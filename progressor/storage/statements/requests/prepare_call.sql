-- prepare_call and notify, after the lock: append to the mailbox of each process. The first task of an idle
-- process runs at once if its caller has a free slot; its timers are blocked behind it. Task ids are drawn
-- under the lock, so their order in a process is the order of acceptance.
-- The outcome of a request that is not accepted is read from the tables, so that an operation repeated
-- after a lost answer finds its own earlier success: a task whose running row has the item's lease is the
-- item's own to run; any other task of the same key is a duplicate, even one of an earlier life of the
-- process.
--
--   item            the request, its process, and the task that has its key; whether it is accepted
--   next            the first request that waits before it (head); whether it is the next of its process:
--                   nothing runs there and none waits before it; the highest priority of this batch there
--   placed          whether it runs at once; the timers of its process; held_time: until when it waits, if its
--                   process rests after a step; group_no: the group in which it waits for room
--
--   new_task        the accepted requests
--   runs_now        the tasks that run at once
--   head            the first timer, which is blocked behind it; else the first request that waits, if it is less
--                   urgent than those that now wait behind it
--   waits           the tasks that wait
WITH item AS (
    SELECT
        i.*,
        p.*,
        old.*,
        coalesce(p.status IN ('init', 'running') AND old.old_id IS NULL, FALSE) AS accepted
    FROM (
        SELECT
            i.*,
            ((SELECT current_setting('prg.locked')::bigint[]))[i.ord] AS process_no
        FROM unnest(
            %(namespace)s::text[], %(process_id)s::text[], %(task_type)s::text[],
            %(name)s::text[], %(args)s::bytea[], %(idempotency_key)s::text[],
            %(request_hash)s::bytea[], %(context)s::bytea[], %(reply_to)s::bigint[],
            %(worker_id)s::bigint[], %(lease)s::bigint[]
        ) WITH ORDINALITY AS i (
            namespace, process_id, task_type,
            name, args, idempotency_key,
            request_hash, context, reply_to,
            worker_id, lease, ord
        )
        OFFSET 0
    ) AS i
    LEFT JOIN LATERAL (
        SELECT
            p.namespace_no, p.status, p.previous_status, p.status_changed_at, p.created_at, p.detail,
            p.aux_state, p.metadata, p.corrupted_by, p.last_event_id, p.birth, p.group_no,
            CASE
                WHEN p.rests_until > coalesce(%(now)s::timestamptz, statement_timestamp())
                    THEN p.rests_until
            END AS held_time
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p ON TRUE
    LEFT JOIN LATERAL (
        SELECT t.process_no AS old_no, t.task_id AS old_id, NULL::bigint AS old_birth
        FROM progressor.tasks AS t
        WHERE t.process_no + 0 = i.process_no AND t.idempotency_key = i.idempotency_key
        UNION ALL
        SELECT t.process_no, t.task_id, r.birth
        FROM
            -- include task_of_earlier_life
        LIMIT 1
    ) AS old ON TRUE
),

next AS (
    SELECT
        item.*,
        head.*,
        item.accepted
        AND row_number() OVER mailbox = 1
        AND NOT EXISTS (
            SELECT FROM progressor.running AS r WHERE r.process_no = item.process_no OFFSET 0
        )
        AND head.head_place IS NULL AS is_next,
        max((%(priority)s::bigint[])[item.ord]) OVER mailbox AS highest
    FROM item
    LEFT JOIN LATERAL (
        SELECT
            s.ctid AS head_place,
            CASE
                WHEN s.claimable OR s.held_time IS NOT NULL THEN coalesce(s.order_time, s.scheduled_time)
            END AS head_time
        FROM progressor.schedule AS s
        WHERE
            item.accepted
            AND s.process_no = item.process_no
            AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ORDER BY s.task_id
        LIMIT 1
    ) AS head ON TRUE
    WINDOW mailbox AS (
        PARTITION BY item.process_no, item.accepted
        ORDER BY item.ord ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
),

placed AS MATERIALIZED (
    SELECT
        next.*,
        timer.*,
        named.*,
        CASE WHEN accepted THEN nextval('progressor.tasks_task_id_seq') END AS new_id,
        is_next AND worker_id IS NOT NULL AND held_time IS NULL AND group_no IS NULL AND namespace_no <> ALL (
            ARRAY(SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.paused)
        ) AS runs,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM next
    LEFT JOIN LATERAL (
        SELECT s.ctid AS timer_place, s.task_type AS timer_type, s.scheduled_time AS timer_due
        FROM progressor.schedule AS s
        WHERE
            s.process_no + 0 = next.process_no AND s.timer = '' AND s.task_type IN ('timeout', 'remove')
            AND (next.is_next OR next.old_id IS NOT NULL)
        OFFSET 0
    ) AS timer ON TRUE
    LEFT JOIN LATERAL (
        SELECT
            max(s.ctid) FILTER (WHERE s.claimable OR s.held_time IS NOT NULL) AS named_place,
            jsonb_agg(jsonb_build_array(s.timer, s.task_type, s.scheduled_time)) AS named_timers
        FROM progressor.schedule AS s
        WHERE
            s.process_no + 0 = next.process_no AND s.timer > '' AND s.task_type IN ('timeout', 'remove')
            AND (next.is_next OR next.old_id IS NOT NULL)
    ) AS named ON TRUE
),

new_task AS (
    INSERT INTO progressor.tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time,
        name, args, idempotency_key, request_hash, context, reply_to, worker_id, lease, expires_at,
        priority, trace
    )
    SELECT
        process_no, new_id, task_type::progressor.task_type,
        CASE WHEN runs THEN 'running' ELSE 'waiting' END::progressor.task_status,
        now, CASE WHEN runs THEN now END,
        name, args, idempotency_key, request_hash, context, reply_to,
        CASE WHEN runs THEN worker_id END, lease,
        now + (%(expires)s::bigint[])[ord] * interval '1 microsecond', nullif((%(priority)s::bigint[])[ord], 0),
        (%(trace)s::text[])[ord]
    FROM placed
    WHERE accepted
),

runs_now AS (
    INSERT INTO progressor.running (process_no, task_id, task_type, worker_id, lease, running_time)
    SELECT process_no, new_id, task_type::progressor.task_type, worker_id, lease, now
    FROM placed
    WHERE runs
),

head AS (
    UPDATE progressor.schedule AS s
    SET
        claimable = s.claimable AND NOT i.is_next,
        order_time = CASE WHEN NOT i.is_next THEN i.now - i.highest * interval '1 minute' END,
        held_time = CASE
            WHEN i.is_next THEN NULL
            -- Its place among those that wait for room; else until when it waits.
            WHEN s.group_no IS NOT NULL THEN i.now - i.highest * interval '1 minute'
            ELSE s.held_time
        END,
        group_no = CASE WHEN NOT i.is_next THEN s.group_no END
    FROM placed AS i
    WHERE
        s.ctid = CASE
            WHEN i.is_next THEN coalesce(i.named_place, i.timer_place)
            WHEN i.head_time > i.now - i.highest * interval '1 minute' THEN i.head_place
        END
),

waits AS (
    INSERT INTO progressor.schedule (
        process_no, task_id, namespace_no, task_type, scheduled_time, claimable, order_time, held_time,
        group_no
    )
    SELECT
        process_no, new_id, namespace_no, task_type::progressor.task_type, now,
        is_next AND held_time IS NULL AND group_no IS NULL,
        order_time,
        CASE
            WHEN is_next THEN coalesce(held_time, CASE WHEN group_no IS NOT NULL THEN coalesce(order_time, now) END)
        END,
        CASE WHEN is_next AND held_time IS NULL THEN group_no END
    FROM (
        SELECT
            placed.*,
            now - nullif(CASE WHEN is_next THEN highest ELSE (%(priority)s::bigint[])[ord] END, 0)
            * interval '1 minute' AS order_time
        FROM placed
    ) AS placed
    WHERE accepted AND NOT runs
)

SELECT
    i.status,
    i.previous_status,
    i.status_changed_at,
    i.created_at,
    i.detail,
    CASE WHEN i.runs OR r.lease IS NOT NULL THEN i.aux_state END AS aux_state,
    i.metadata,
    i.corrupted_by,
    i.last_event_id,
    CASE WHEN coalesce(i.old_no, i.process_no) = i.process_no THEN i.birth ELSE i.old_birth END AS birth,
    coalesce(i.old_no, i.process_no) AS process_no,
    coalesce(i.new_id, i.old_id) AS task_id,
    CASE WHEN i.runs THEN 'running' WHEN i.accepted THEN 'waiting' ELSE t.status END AS task_status,
    CASE WHEN i.accepted THEN i.request_hash ELSE t.request_hash END AS request_hash,
    t.response,
    t.error,
    coalesce(t.scheduled_time, i.now) AS scheduled_time,
    CASE WHEN i.runs THEN i.now ELSE r.running_time END AS running_time,
    i.timer_type,
    i.timer_due,
    i.named_timers,
    i.runs OR r.lease IS NOT NULL AS runs,
    i.accepted OR t.lease = i.lease AS own,
    t.reply_to
FROM placed AS i
LEFT JOIN LATERAL (
    SELECT t.status, t.request_hash, t.response, t.error, t.scheduled_time, t.lease, t.reply_to
    FROM progressor.tasks AS t
    WHERE t.process_no = i.old_no AND t.task_id = i.old_id
    OFFSET 0
) AS t ON TRUE
LEFT JOIN LATERAL (
    SELECT r.lease, r.running_time
    FROM progressor.running AS r
    WHERE r.process_no = i.old_no AND r.task_id = i.old_id AND r.lease = i.lease
    OFFSET 0
) AS r ON TRUE
ORDER BY i.ord
