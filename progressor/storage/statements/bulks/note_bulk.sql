-- run_bulk, last: store the progress of the bulk and the repairs that it began, in the transaction of the
-- repairs.
WITH begun AS (
    INSERT INTO progressor.bulk_repairs (bulk_id, process_no, task_id, redo_task_id)
    SELECT %(bulk_id)s::bigint, i.process_no, i.task_id, i.redo_task_id
    FROM unnest(%(process_no)s::bigint[], %(task_id)s::bigint[], %(redo_task_id)s::bigint[])
    AS i (process_no, task_id, redo_task_id)
)

UPDATE progressor.bulks AS b
SET
    status = %(status)s::text,
    ended_at = %(ended_at)s::timestamptz,
    cursor_at = %(cursor_at)s::timestamptz,
    cursor_no = %(cursor_no)s::bigint,
    at_end = %(at_end)s::boolean,
    paced_at = %(paced_at)s::timestamptz,
    next_at = %(next_at)s::timestamptz,
    still_since = %(still_since)s::timestamptz,
    looked_at = %(looked_at)s::bigint,
    passed_by = %(passed_by)s::bigint,
    begun = %(begun)s::bigint,
    repaired = %(repaired)s::bigint,
    refused = %(refused)s::bigint,
    failed = %(failed)s::bigint,
    removed = %(removed)s::bigint,
    redone = %(redone)s::bigint,
    last_error = %(last_error)s::text
WHERE b.bulk_id = %(bulk_id)s::bigint
