-- As many as the rate of the namespace admits; all if it has none. Rows beyond are not even locked.
LIMIT CASE WHEN %(rate_interval)s::bigint IS NOT NULL THEN coalesce(
    (
        SELECT pace.begins
        FROM (
            SELECT
                r.next_at,
                %(rate_interval)s::bigint * interval '1 microsecond' AS step,
                %(rate_burst)s::bigint AS burst
            FROM progressor.rates AS r
            WHERE
                r.namespace_no = (
                    SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
                )
        ) AS rate
        -- include pace
    ),
    0
) END
