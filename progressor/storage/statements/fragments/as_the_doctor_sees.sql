-- Parts of FROM: where the sequence of `u` is, for who only reads. One that was never used has given none; who must
-- not use it does not see it, and finds nothing.
JOIN pg_class AS c ON c.oid = u.sequence
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN has_sequence_privilege(u.sequence, 'USAGE, SELECT')
                THEN coalesce(pg_sequence_last_value(u.sequence), 0)
        END AS last
) AS s
