-- import, fifth: schedule the tasks that wait. The next of a process, its oldest request or else its earliest
-- timer, may be claimed, unless the process is broken, rests, or the request needs room in a group. The next
-- request is as urgent as the most urgent behind it.
WITH waiting AS MATERIALIZED (
    SELECT
        i.*,
        row_number() OVER (
            PARTITION BY i.process_no
            ORDER BY i.is_timer, CASE WHEN i.is_timer THEN i.scheduled_time END, i.task_id
        ) = 1 AND (i.task_type = 'repair' OR NOT i.is_broken) AS is_next,
        CASE WHEN max(i.order_time) OVER of_process IS NOT NULL THEN
            min(coalesce(i.order_time, i.scheduled_time)) FILTER (WHERE NOT i.is_timer) OVER of_process
        END AS most_urgent
    FROM (
        SELECT i.*, i.task_type IN ('timeout', 'remove') AS is_timer
        FROM unnest(
            %(process_no)s::bigint[], %(task_id)s::bigint[], %(namespace_no)s::bigint[], %(task_type)s::text[],
            %(timer)s::text[], %(scheduled_time)s::timestamptz[], %(order_time)s::timestamptz[],
            %(rests_until)s::timestamptz[], %(group_no)s::bigint[], %(is_broken)s::boolean[]
        ) AS i (
            process_no, task_id, namespace_no, task_type, timer, scheduled_time, order_time, rests_until,
            group_no, is_broken
        )
    ) AS i
    WINDOW of_process AS (PARTITION BY i.process_no)
),

placed AS (
    SELECT
        w.*,
        CASE WHEN w.is_next AND NOT w.is_timer THEN coalesce(w.most_urgent, w.order_time) ELSE w.order_time END
            AS stands_at,
        w.is_next AND w.rests_until > coalesce(%(now)s::timestamptz, now())
        AND (NOT w.is_timer OR w.scheduled_time < w.rests_until) AS rests,
        w.is_next AND w.group_no IS NOT NULL AND NOT w.is_timer AS needs_room
    FROM waiting AS w
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, timer, scheduled_time, claimable, order_time, held_time,
    group_no
)
SELECT
    p.process_no, p.task_id, p.namespace_no, p.task_type::progressor.task_type, p.timer, p.scheduled_time,
    p.is_next AND p.rests IS NOT TRUE AND NOT p.needs_room,
    p.stands_at,
    CASE
        WHEN p.rests THEN p.rests_until
        WHEN p.needs_room THEN coalesce(p.stands_at, p.scheduled_time)
    END,
    CASE WHEN p.rests IS NOT TRUE AND p.needs_room THEN p.group_no END
FROM placed AS p
