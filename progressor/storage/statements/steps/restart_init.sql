-- Repairs succeed in this transaction, on processes that broke in their init: the init task waits again,
-- with its arguments and its key, as the first of its mailbox. It keeps the error of its last run until the
-- next run ends, as a retried timer does. This comes before the statement that ends the repairs, while
-- their running rows, the fence, are still held.
WITH item AS MATERIALIZED (
    SELECT
        i.process_no, p.corrupted_by AS init_id, p.namespace_no,
        coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM unnest(
        %(process_no)s::bigint[], %(task_id)s::bigint[], %(worker_id)s::bigint[], %(lease)s::bigint[]
    ) AS i (process_no, task_id, worker_id, lease)
    -- include held
    CROSS JOIN LATERAL (
        SELECT p.corrupted_by, p.namespace_no
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no
        OFFSET 0
    ) AS p
),

init_task AS (
    -- include init_waits_again
)

INSERT INTO progressor.schedule (
    process_no, task_id, namespace_no, task_type, scheduled_time, claimable, order_time
)
SELECT
    i.process_no, i.init_id, i.namespace_no, 'init', i.now, FALSE, i.now - t.priority * interval '1 minute'
FROM item AS i
JOIN init_task AS t ON t.process_no = i.process_no
