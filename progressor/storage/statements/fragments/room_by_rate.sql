-- How many more of the group `g` may begin by the rate of its groups; NULL if they have none.
CROSS JOIN LATERAL (
    SELECT
        coalesce(g.next_at, '-infinity') AS next_at,
        %(group_interval)s::bigint * interval '1 microsecond' AS step,
        %(group_burst)s::bigint AS burst
) AS rate
-- include pace
