-- Repairs succeed in this transaction, on processes that broke in their init: the init task waits again,
-- with its arguments and its key, as the first of its mailbox. It keeps the error of its last run until the
-- next run ends, as a retried timer does. This comes before the statement that ends the repairs, while
-- their running rows, the fence, are still held.
WITH item AS MATERIALIZED (
    SELECT
        i.process_no, p.corrupted_by AS task_id, p.namespace_no,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[]
    ) AS i (process_no, task_id, worker_id, lease)
    CROSS JOIN LATERAL (
        SELECT FROM progressor.running AS r
        WHERE
            r.process_no = i.process_no AND r.task_id = i.task_id AND r.lease = i.lease
            AND r.worker_id IS NOT DISTINCT FROM i.worker_id
        OFFSET 0
    ) AS r
    CROSS JOIN LATERAL (
        SELECT p.corrupted_by, p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
),

init_task AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'waiting', scheduled_time = i.now, running_time = NULL, finished_time = NULL,
        worker_id = NULL, attempts_count = coalesce(t.attempts_count, 0) + 1, zombie_count = NULL
    FROM item AS i
    WHERE
        t.ctid = (
            SELECT o.ctid FROM progressor.tasks AS o
            WHERE o.process_no = i.process_no AND o.task_id = i.task_id
        )
)

INSERT INTO progressor.schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT process_no, task_id, namespace_no, 'init', now, FALSE
FROM item
