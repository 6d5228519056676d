-- Have what is parked of a subscription tried again: all, or that of the process of one entry. With `skip`
-- that entry is left out, and what waits behind it is tried. What is to be skipped stays so.
WITH one AS MATERIALIZED (
    SELECT p.namespace, p.process_id
    FROM progressor.parked AS p
    WHERE p.parked_no = ANY (ARRAY[%(parked_no)s::bigint]) AND p.name || '' = %(name)s::text
),

chosen AS MATERIALIZED (
    SELECT p.parked_no
    FROM progressor.parked AS p
    WHERE p.name = %(name)s::text AND %(parked_no)s::bigint IS NULL
    UNION ALL
    SELECT p.parked_no
    FROM one AS o
    CROSS JOIN LATERAL (
        SELECT p.parked_no
        FROM progressor.parked AS p
        WHERE p.name = %(name)s::text AND p.namespace = o.namespace AND p.process_id = o.process_id
        ORDER BY p.parked_no + 0
        OFFSET 0
    ) AS p
),

acted AS (
    UPDATE progressor.parked AS p
    SET
        action = CASE
            WHEN %(skip)s::boolean AND p.parked_no = %(parked_no)s::bigint THEN 's'
            WHEN p.action = 's' THEN 's'
            ELSE 'r'
        END
    FROM chosen AS c
    WHERE p.parked_no = ANY (ARRAY[c.parked_no])
    RETURNING p.namespace, p.process_id
)

SELECT
    count(*) AS many,
    (SELECT o.namespace FROM one AS o) AS namespace, (SELECT o.process_id FROM one AS o) AS process_id
FROM acted
