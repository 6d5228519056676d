-- Of many watched lives those whose rows are not of the version that their watchers know, or are gone, by
-- their places in the arrays. A version is the transaction that wrote the row: every step that changes its
-- process writes it, and a lock does not.
SELECT i.place
FROM unnest(%(process_no)s::bigint[], %(birth)s::bigint[], %(version)s::bigint[])
    WITH ORDINALITY AS i (process_no, birth, version, place)
LEFT JOIN LATERAL (
    SELECT p.birth, p.xmin::text::bigint AS version
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no
    OFFSET 0
) AS p ON TRUE
WHERE p.version IS DISTINCT FROM i.version OR p.birth IS DISTINCT FROM i.birth
