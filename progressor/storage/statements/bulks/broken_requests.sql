-- run_bulk, behind the locks of its processes and before their repairs: the first request of each to run
-- again, the call or notify that broke it. If anything else broke it, that is the first of those that were
-- cancelled since then. A change of a timer is no request that is run again.
-- Those were cancelled as the process broke, or came while it was broken. Whatever ran before the break is
-- older: requests run in their order, and a timer only when none waits. So is the repair after which the
-- process ran, and what an earlier break had cancelled is older than that repair. Repairs that left the
-- process broken, dry runs among them, came in between, and tell nothing.
SELECT i.process_no, coalesce(broke.task_id, waited.task_id) AS task_id
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT p.corrupted_by FROM progressor.processes AS p WHERE p.process_no = i.process_no OFFSET 0
) AS p
LEFT JOIN LATERAL (
    SELECT t.task_id
    FROM progressor.tasks AS t
    WHERE
        t.process_no = i.process_no AND t.task_id = p.corrupted_by
        AND t.task_type IN ('call', 'notify') AND NOT starts_with(t.name, 'progressor:')
    OFFSET 0
) AS broke ON TRUE
LEFT JOIN LATERAL (
    SELECT t.task_id
    FROM progressor.tasks AS t
    WHERE
        t.process_no = i.process_no
        AND broke.task_id IS NULL
        AND t.task_id > coalesce((
            SELECT ran.task_id
            FROM progressor.tasks AS ran
            WHERE
                ran.process_no = i.process_no AND ran.running_time IS NOT NULL
                AND (
                    ran.task_type <> 'repair'
                    OR ran.status = 'finished' AND ran.name IS DISTINCT FROM 'dry_run'
                )
            ORDER BY ran.task_id DESC
            LIMIT 1
        ), 0)
        AND
            -- include cancelled_call
    ORDER BY t.task_id
    LIMIT 1
) AS waited ON TRUE
WHERE coalesce(broke.task_id, waited.task_id) IS NOT NULL
