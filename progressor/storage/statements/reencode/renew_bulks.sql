-- reencode: write args of bulks anew. One of which a round is under way is passed over.
WITH held AS MATERIALIZED (
    SELECT b.ctid AS place, i.value
    FROM unnest(%(process_no)s::bigint[], %(old_args)s::bytea[], %(args)s::bytea[]) AS i (bulk_id, old, value)
    INNER JOIN progressor.bulks AS b ON b.bulk_id = i.bulk_id AND b.args = i.old
    FOR UPDATE OF b SKIP LOCKED
)

UPDATE progressor.bulks AS b
SET args = i.value
FROM held AS i
WHERE b.ctid = i.place
RETURNING b.bulk_id AS process_no, 0::bigint AS id, 0 AS n
