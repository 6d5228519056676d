-- Make a subscription whose slices all begin at one place, unless it is there.
WITH made AS (
    INSERT INTO progressor.subscriptions (name, slices)
    VALUES (%(name)s::text, %(slices)s::bigint::integer)
    ON CONFLICT (name) DO NOTHING
    RETURNING name, slices
)

INSERT INTO progressor.subscription_slices (name, slice, position, item, n, mark, epoch, walk, walk_n)
SELECT
    m.name, s.slice, %(position)s::bigint, %(item)s::bigint, %(n)s::bigint, %(mark)s::bigint,
    %(epoch)s::bigint, %(walk)s::bigint, %(walk_n)s::bigint
FROM made AS m
CROSS JOIN LATERAL generate_series(0, m.slices - 1) AS s (slice)
