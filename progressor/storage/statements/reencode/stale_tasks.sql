-- reencode: args, contexts and answers of the next tasks, by process, as stale_states. A timer keeps its rule
-- in args, and a task that failed its rejection as the answer: these are the engine's own, and never encoded.
WITH stored AS MATERIALIZED (
    SELECT
        i.process_no, i.task_id AS id, 0 AS n, r.name AS ring, r.name AS namespace, p.process_id,
        v.kind, v.value, r.prefix
    FROM (
        SELECT t.process_no, t.task_id, t.task_type, t.status, t.args, t.context, t.response
        FROM progressor.tasks AS t
        WHERE (t.process_no, t.task_id) > (%(process_no)s::bigint, %(id)s::bigint)
        ORDER BY t.process_no, t.task_id
        LIMIT %(reads)s::bigint
    ) AS i
    -- include its_ring
    CROSS JOIN LATERAL (
        VALUES
        ('args', CASE WHEN i.task_type NOT IN ('timeout', 'remove') THEN i.args END),
        ('context', i.context),
        ('response', CASE WHEN i.status = 'finished' THEN i.response END)
    ) AS v (kind, value)
),

-- include weighed
