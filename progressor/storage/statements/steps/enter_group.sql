-- enter_group, second, after the lock: the process of an init gets its group, and the init, which has not begun,
-- waits for room there. Behind the fence: a worker that lost its lease changes nothing.
WITH item AS MATERIALIZED (
    SELECT i.process_no, i.task_id, r.place AS running_place, p.place, p.namespace_no, g.group_no
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[]
    ) AS i (process_no, task_id, worker_id, lease)
    -- include held
    CROSS JOIN LATERAL (
        SELECT p.ctid AS place, p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT g.group_no
        FROM progressor.groups AS g
        WHERE g.namespace_no = p.namespace_no AND g.group_key = %(group_key)s::text
        OFFSET 0
    ) AS g
    WHERE r.task_type = 'init'
),

process AS (
    UPDATE progressor.processes AS p
    SET group_no = i.group_no
    FROM item AS i
    WHERE p.ctid = i.place
),

given_back AS (
    DELETE FROM progressor.running AS r
    USING item AS i
    WHERE r.ctid = i.running_place
),

task AS (
    UPDATE progressor.tasks AS t
    SET status = 'waiting', running_time = NULL, worker_id = NULL, lease = NULL
    FROM item AS i
    WHERE
        t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.task_id
        )
    RETURNING t.process_no, t.task_id, t.scheduled_time, t.priority
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, scheduled_time, claimable, order_time, held_time, group_no
)
SELECT
    s.process_no, s.task_id, i.namespace_no, 'init', s.scheduled_time, FALSE, urgent.order_time,
    coalesce(urgent.order_time, s.scheduled_time), i.group_no
FROM task AS s
JOIN item AS i ON i.process_no = s.process_no
CROSS JOIN LATERAL (
    SELECT
        least(
            s.scheduled_time - coalesce(s.priority, 0) * interval '1 minute',
            -- include most_urgent
        ) AS order_time
) AS urgent
RETURNING group_no
