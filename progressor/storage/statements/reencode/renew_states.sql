-- reencode, behind lock_swept: write states anew. One that is no longer what was read stays.
UPDATE progressor.processes AS p
SET aux_state = i.value
FROM unnest(%(process_no)s::bigint[], %(old_state)s::bytea[], %(state)s::bytea[]) AS i (process_no, old, value)
WHERE p.process_no = ANY (ARRAY[i.process_no]) AND p.aux_state = i.old
RETURNING p.process_no, 0::bigint AS id, 0 AS n
