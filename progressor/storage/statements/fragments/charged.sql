-- From the moment on at which the last of them begins. An init that is to enter a group does not begin.
charged AS (
    UPDATE progressor.rates AS r
    SET
        -- include begun
    FROM (
        SELECT
            count(*) AS begins,
            max(d.running_time) AS running_time,
            %(rate_interval)s::bigint * interval '1 microsecond' AS step,
            %(rate_burst)s::bigint AS burst
        FROM due AS d
        WHERE d.task_type <> 'init' OR NOT %(enters)s::boolean
    ) AS b
    WHERE
        r.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
        )
        AND b.begins > 0 AND b.step IS NOT NULL
),

