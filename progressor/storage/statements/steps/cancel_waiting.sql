-- Processes break in this transaction: cancel the requests that wait on them, and return those with
-- callers. A waiting timer stays as it is: it is not claimable while a task runs, so it is held. This comes
-- before the statement that ends the steps, while their running rows, the fence, are still held. Of a long
-- mailbox the oldest `most` are cancelled; cancel_stranded later cancels the others, which no claim takes.
WITH item AS MATERIALIZED (
    SELECT
        i.process_no, i.detail,
        (
            SELECT max(first.task_id)
            FROM (
                SELECT s.task_id
                FROM progressor.schedule AS s
                WHERE
                    s.process_no = i.process_no
                    AND s.task_type IN ('init', 'call', 'notify', 'repair')
                ORDER BY s.task_id
                LIMIT %(most)s::bigint
            ) AS first
        ) AS up_to
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[],
        %(detail)s::text[]
    ) AS i (process_no, task_id, worker_id, lease, detail)
    -- include held
),

gone AS (
    DELETE FROM progressor.schedule AS s
    USING item AS i
    WHERE
        s.process_no = ANY (ARRAY[i.process_no]) AND s.task_id <= i.up_to
        AND s.task_type IN ('init', 'call', 'notify', 'repair')
    RETURNING s.process_no, s.task_id, i.detail
),

cancelled AS (
    -- include cancelled_requests
    RETURNING t.process_no, t.task_id, t.reply_to
)

-- Callers that are not notified find out by their own poll, a little later.
SELECT c.process_no, c.task_id, c.reply_to
FROM cancelled AS c
WHERE c.reply_to IS NOT NULL
LIMIT 1000
