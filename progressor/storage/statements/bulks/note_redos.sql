-- run_bulk, last of a round that runs requests again: none of these is to be tried once more. Of a process
-- that `goes_on`, the next is due, which was cancelled as the process broke: it is older than the repair.
UPDATE progressor.bulk_repairs AS r
SET
    redo_task_id = CASE WHEN i.goes_on THEN (
        SELECT t.task_id
        FROM progressor.tasks AS t
        WHERE
            t.process_no = r.process_no AND t.task_id > r.redo_task_id AND t.task_id < r.task_id
            AND
                -- include cancelled_call
        ORDER BY t.task_id
        LIMIT 1
    ) END
FROM unnest(%(process_no)s::bigint[], %(redo_task_id)s::bigint[], %(goes_on)s::boolean[])
AS i (process_no, redo_task_id, goes_on)
WHERE
    r.bulk_id = %(bulk_id)s::bigint AND r.process_no = ANY (ARRAY[i.process_no])
    AND r.redo_task_id = i.redo_task_id
RETURNING r.process_no
