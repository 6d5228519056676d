-- What was parked has failed again: it waits for another word, and so does all behind it of its process but
-- what is to be skipped. No row means that it is not there, or that another reader has its slice.
UPDATE progressor.parked AS p
SET
    action = CASE WHEN p.action = 's' AND p.parked_no <> %(parked_no)s::bigint THEN 's' END,
    attempts = p.attempts + CASE WHEN p.parked_no = %(parked_no)s::bigint THEN 1 ELSE 0 END,
    error = CASE WHEN p.parked_no = %(parked_no)s::bigint THEN %(error)s::text ELSE p.error END
FROM (
    SELECT o.parked_no
    FROM (
        SELECT f.name, f.slice, f.namespace, f.process_id
        FROM progressor.parked AS f
        WHERE f.parked_no = ANY (ARRAY[%(parked_no)s::bigint])
        OFFSET 0
    ) AS f
    CROSS JOIN LATERAL (
        SELECT
        FROM progressor.subscription_slices AS s
        WHERE s.name = f.name AND s.slice = f.slice AND s.lease = %(lease)s::bigint
        OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT o.parked_no
        FROM progressor.parked AS o
        WHERE o.name = f.name AND o.namespace = f.namespace AND o.process_id = f.process_id
        ORDER BY o.parked_no + 0
        OFFSET 0
    ) AS o
) AS i
WHERE p.parked_no = ANY (ARRAY[i.parked_no])
RETURNING p.parked_no
