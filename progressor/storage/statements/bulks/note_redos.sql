-- run_bulk, last of a round that runs requests again: none of these is to be tried once more.
UPDATE progressor.bulk_repairs AS r
SET redo_task_id = NULL
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
WHERE
    r.bulk_id = %(bulk_id)s::bigint AND r.process_no = ANY (ARRAY[i.process_no])
    AND r.redo_task_id IS NOT NULL
RETURNING r.process_no
