-- What a walk `w` looks at in a namespace `n`, in its order: up to `looks` rows of one index, behind a place.
(
    -- [created
    SELECT p.process_no, p.created_at AS at, p.process_no AS no, p.status, p.metadata, p.created_at
    FROM progressor.processes AS p
    WHERE
        p.namespace_no = n.namespace_no
        -- In the words and the order of its index, so that the planner takes no other one.
        AND p.created_at > '-infinity'
        AND (p.created_at, p.process_no) > (n.behind_at, n.behind_no)
        AND p.created_at < coalesce(%(created_before)s::timestamptz, 'infinity')
    ORDER BY p.created_at, p.process_no
    LIMIT w.looks
    -- created]
    -- [broken
    SELECT p.process_no, p.created_at AS at, p.process_no AS no, p.status, p.metadata, p.created_at
    FROM progressor.processes AS p
    WHERE
        p.namespace_no = n.namespace_no
        AND p.detail IS NOT NULL
        AND (p.created_at, p.process_no) > (n.behind_at, n.behind_no)
        AND p.created_at < coalesce(%(created_before)s::timestamptz, 'infinity')
    ORDER BY p.created_at, p.process_no
    LIMIT w.looks
    -- broken]
    -- [due
    SELECT p.process_no, s.at, s.no, p.status, p.metadata, p.created_at
    FROM (
        SELECT s.process_no, s.scheduled_time AS at, s.task_id AS no
        FROM progressor.schedule AS s
        WHERE
            s.namespace_no = n.namespace_no AND s.claimable
            AND s.task_type IN ('timeout', 'remove')
            AND (s.scheduled_time, s.task_id) > (n.behind_at, n.behind_no)
            AND s.scheduled_time <= coalesce(%(now)s::timestamptz, now())
        ORDER BY s.scheduled_time, s.task_id
        LIMIT w.looks
    ) AS s
    CROSS JOIN LATERAL (
        SELECT p.process_no, p.status, p.metadata, p.created_at
        FROM progressor.processes AS p
        WHERE p.process_no = s.process_no
        OFFSET 0
    ) AS p
    -- due]
) AS l
