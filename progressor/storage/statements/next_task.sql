-- The task that waits first in the mailbox of a process, if it could be claimed now. It is asked for by a
-- worker whose step waits for this process; whether it still waits, its claim will see.
SELECT h.task_id
FROM (
    SELECT s.task_id, s.claimable
    FROM progressor.schedule AS s
    WHERE
        s.process_no = %(process_no)s::bigint
        AND s.task_type IN ('init', 'call', 'notify', 'repair')
    ORDER BY s.task_id
    LIMIT 1
) AS h
WHERE h.claimable
