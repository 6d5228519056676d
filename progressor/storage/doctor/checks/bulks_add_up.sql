-- A bulk has counted the outcome of each repair that it began, or still waits for it; an ended bulk waits for none.
-- Reads: bulks, bulk_repairs.
SELECT
    coalesce(b.namespace, '?') AS namespace, NULL::text AS process_id, NULL::bigint AS task_id,
    CASE
        WHEN b.bulk_id IS NULL THEN format('%%s repairs are looked for by bulk %%s, which is not there', r.open, r.bulk_id)
        ELSE format(
            'bulk %%s (%%s) began %%s repairs, %%s have ended and %%s are looked for', b.bulk_id, b.status,
            b.begun, b.repaired + b.refused + b.failed + b.removed, coalesce(r.open, 0)
        )
    END AS found
FROM progressor.bulks AS b
FULL JOIN (
    SELECT bulk_id, count(*) AS open FROM progressor.bulk_repairs GROUP BY bulk_id
) AS r ON r.bulk_id = b.bulk_id
WHERE
    (%(namespace)s::text IS NULL OR b.namespace = %(namespace)s::text)
    AND (
        b.bulk_id IS NULL
        OR b.begun <> b.repaired + b.refused + b.failed + b.removed + coalesce(r.open, 0)
        OR (b.ended_at IS NOT NULL AND r.open > 0)
        OR b.begun + b.passed_by > b.looked_at
    )
