-- reencode, behind lock_swept: write args, contexts and answers anew, NULL for what stays. A task of which one
-- is no longer what was read stays as it is.
UPDATE progressor.tasks AS t
SET
    args = coalesce(i.args, t.args),
    context = coalesce(i.context, t.context),
    response = coalesce(i.response, t.response)
FROM unnest(
    %(process_no)s::bigint[], %(id)s::bigint[],
    %(old_args)s::bytea[], %(args)s::bytea[], %(old_context)s::bytea[], %(context)s::bytea[],
    %(old_response)s::bytea[], %(response)s::bytea[]
) AS i (process_no, id, old_args, args, old_context, context, old_response, response)
WHERE
    t.process_no = ANY (ARRAY[i.process_no]) AND t.task_id = i.id
    AND (i.args IS NULL OR t.args = i.old_args)
    AND (i.context IS NULL OR t.context = i.old_context)
    AND (i.response IS NULL OR t.response = i.old_response)
RETURNING t.process_no, t.task_id AS id, 0 AS n
