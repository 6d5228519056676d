-- The args of a bulk as they are stored, unless they have more bytes than `most`; and how many they have.
SELECT
    CASE WHEN octet_length(b.args) <= %(most)s::bigint THEN b.args END AS args,
    coalesce(octet_length(b.args), 0) AS size
FROM progressor.bulks AS b
WHERE b.bulk_id = %(bulk_id)s::bigint
