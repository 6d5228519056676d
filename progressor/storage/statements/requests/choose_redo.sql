-- redo, after the lock: which processes still have, in this life, the ended task that is to be run again.
-- The numbers are handed on in prg.locked, with NULL for a process that has not: prepare_call then finds
-- an earlier redo, if there was one, and accepts nothing.
SELECT set_config('prg.locked', ARRAY(
    SELECT (
        SELECT p.process_no
        FROM progressor.processes AS p
        WHERE
            p.process_no = i.process_no AND p.birth IS NOT DISTINCT FROM i.birth
            AND EXISTS (
                SELECT FROM progressor.tasks AS t
                WHERE
                    t.process_no = i.process_no AND t.task_id = i.task_id
                    AND t.idempotency_key IS NOT DISTINCT FROM i.idempotency_key
                    AND t.request_hash IS NOT DISTINCT FROM i.request_hash
                    AND t.finished_time IS NOT NULL
                OFFSET 0
            )
    )
    FROM unnest(
        %(process_no)s::bigint[], %(birth)s::bigint[], %(old_task_id)s::bigint[],
        %(old_idempotency_key)s::text[], %(old_request_hash)s::bytea[]
    ) WITH ORDINALITY AS i (process_no, birth, task_id, idempotency_key, request_hash, ord)
    ORDER BY i.ord
)::text, TRUE) AS locked
