-- The first request in the mailbox of a process, if it can be claimed now. A worker whose step waits for
-- this process asks for it; the claim checks whether it still waits.
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
