-- Whether what a message began is under way: the message is still to be delivered; the process that it started
-- is broken, or something runs or waits on it, but for its removal; or the notice has not ended. With `is_same`
-- the process must be gone.
SELECT
    EXISTS (
        SELECT FROM progressor.outbox AS o
        WHERE o.process_no = %(sender_no)s::bigint AND o.task_id = %(task_id)s::bigint
    )
    OR EXISTS (
        SELECT FROM progressor.processes AS p
        WHERE
            p.namespace_no = (
                SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
            )
            AND p.process_id = %(process_id)s::text
            AND CASE
                WHEN %(is_start)s::boolean THEN
                    %(is_same)s::boolean OR p.status <> 'running'
                    OR EXISTS (
                        SELECT FROM progressor.schedule AS s
                        WHERE s.process_no = p.process_no AND s.task_type <> 'remove'
                        OFFSET 0
                    )
                    OR EXISTS (
                        SELECT FROM progressor.running AS r WHERE r.process_no = p.process_no OFFSET 0
                    )
                ELSE EXISTS (
                    SELECT FROM progressor.tasks AS t
                    WHERE
                        t.process_no + 0 = p.process_no AND t.idempotency_key = %(idempotency_key)s::text
                        AND t.finished_time IS NULL
                    OFFSET 0
                )
            END
    ) AS goes_on
