-- cancel_stranded, after the lock: cancel the next requests that wait on a broken process, the oldest
-- first, and return those with callers. No claim takes any of them, and no repair begins before all are
-- gone.
WITH item AS MATERIALIZED (
    SELECT
        i.process_no, p.detail,
        (
            SELECT max(first.task_id)
            FROM (
                SELECT s.task_id
                FROM progressor.schedule AS s
                WHERE s.process_no = i.process_no AND s.task_type IN ('init', 'call', 'notify')
                ORDER BY s.task_id
                LIMIT %(most)s::bigint
            ) AS first
        ) AS up_to
    FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
    CROSS JOIN LATERAL (
        SELECT p.detail
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no AND p.status = 'error'
        OFFSET 0
    ) AS p
),

gone AS (
    DELETE FROM progressor.schedule AS s
    USING item AS i
    WHERE
        s.process_no = ANY (ARRAY[i.process_no]) AND s.task_id <= i.up_to
        AND s.task_type IN ('init', 'call', 'notify')
    RETURNING s.process_no, s.task_id, i.detail
),

cancelled AS (
    -- include cancelled_requests
    RETURNING t.process_no, t.task_id, t.reply_to, t.error
)

-- Callers that are not notified find out by their own poll, a little later.
SELECT c.process_no, c.task_id, c.reply_to, c.error
FROM cancelled AS c
WHERE c.reply_to IS NOT NULL
LIMIT 1000
