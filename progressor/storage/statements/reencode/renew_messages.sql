-- reencode: write args of messages anew. Its sender may be gone, so the message itself is locked; one that is
-- being delivered is passed over, and waits for nobody: who delivers may lock processes meanwhile.
WITH held AS MATERIALIZED (
    SELECT o.ctid AS place, i.value
    FROM unnest(
        %(process_no)s::bigint[], %(id)s::bigint[], %(n)s::bigint[], %(old_args)s::bytea[], %(args)s::bytea[]
    ) AS i (process_no, id, n, old, value)
    INNER JOIN progressor.outbox AS o
        ON o.process_no = ANY (ARRAY[i.process_no]) AND o.task_id = i.id AND o.n = i.n AND o.args = i.old
    FOR UPDATE OF o SKIP LOCKED
)

UPDATE progressor.outbox AS o
SET args = i.value
FROM held AS i
WHERE o.ctid = i.place
RETURNING o.process_no, o.task_id AS id, o.n
