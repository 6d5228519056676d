-- redo, last: the tasks that were just accepted get the values of those that they run again, as they are
-- stored. Nobody sees them before the commit. In a repetition a task may have run by now, and is left alone.
UPDATE progressor.tasks AS t
SET
    args = old.args, context = old.context,
    -- Without the seconds for which the caller of the ended one waited.
    trace = coalesce(t.trace, regexp_replace(old.trace, '^(.{55})[+][0-9]+', '\1'))
FROM unnest(
    %(process_no)s::bigint[], %(old_task_id)s::bigint[], %(idempotency_key)s::text[], %(lease)s::bigint[]
) AS i (process_no, old_id, idempotency_key, lease)
CROSS JOIN LATERAL (
    SELECT o.args, o.context, o.trace
    FROM progressor.tasks AS o
    WHERE o.process_no = i.process_no AND o.task_id = i.old_id
    OFFSET 0
) AS old
CROSS JOIN LATERAL (
    SELECT n.ctid AS place
    FROM progressor.tasks AS n
    WHERE
        n.process_no + 0 = i.process_no AND n.idempotency_key = i.idempotency_key
        AND n.lease = i.lease AND n.status = 'waiting'
    OFFSET 0
) AS new
WHERE t.ctid = new.place
