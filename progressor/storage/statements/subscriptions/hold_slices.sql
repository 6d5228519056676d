-- After lock_subscription: note that a reader lives, and give it free slices, up to its share of all: each
-- live reader has the same, rounded up. A slice is free if nobody holds it, or one who was not seen for its
-- lease_age. The rows are the slices that the reader holds, with their checkpoints; one at least, for the
-- share.
--
--   alive          this reader
--   other, gone    the other readers; those that are not live, forgotten
--   fair           the share
--   taken          what it gets now, under a lease of its own
WITH alive AS (
    INSERT INTO progressor.subscription_readers AS r (name, reader_id, host, lease_age)
    VALUES (%(name)s::text, %(reader_id)s::bigint, %(host)s::text, %(lease_age)s::interval)
    ON CONFLICT (name, reader_id) DO UPDATE SET seen_at = now()
),

other AS MATERIALIZED (
    SELECT
        r.reader_id,
        -- A time to come is of a clock that was set back since: nobody knows when that reader was seen.
        r.seen_at + r.lease_age > now() AND r.seen_at - r.lease_age < now() AS is_live
    FROM progressor.subscription_readers AS r
    WHERE r.name = %(name)s::text AND r.reader_id <> %(reader_id)s::bigint
),

gone AS (
    DELETE FROM progressor.subscription_readers AS r
    USING other AS o
    WHERE NOT o.is_live AND r.name = %(name)s::text AND r.reader_id = o.reader_id
),

fair AS MATERIALIZED (
    SELECT
        (
            SELECT ceil(s.slices::numeric / (1 + (SELECT count(*) FROM other AS o WHERE o.is_live)))
            FROM progressor.subscriptions AS s
            WHERE s.name = %(name)s::text
        )::bigint AS share,
        (
            SELECT count(*)
            FROM progressor.subscription_slices AS s
            WHERE s.name = %(name)s::text AND s.reader_id = %(reader_id)s::bigint
        ) AS held
),

taken AS (
    UPDATE progressor.subscription_slices AS s
    SET reader_id = %(reader_id)s::bigint, lease = %(lease)s::bigint
    FROM (
        SELECT s.slice
        FROM progressor.subscription_slices AS s
        WHERE
            s.name = %(name)s::text AND s.reader_id IS DISTINCT FROM %(reader_id)s::bigint
            AND NOT EXISTS (SELECT FROM other AS o WHERE o.is_live AND o.reader_id = s.reader_id)
        ORDER BY s.slice
        LIMIT (SELECT greatest(0, f.share - f.held) FROM fair AS f)
    ) AS free
    WHERE s.name = %(name)s::text AND s.slice = free.slice
    RETURNING s.*
)

SELECT
    f.share, s.slice, s.lease, s.position, s.item, s.n, s.mark, s.epoch, s.walk, s.walk_n, s.attempts
FROM fair AS f
LEFT JOIN (
    SELECT s.*
    FROM progressor.subscription_slices AS s
    WHERE s.name = %(name)s::text AND s.reader_id = %(reader_id)s::bigint
    UNION ALL
    SELECT t.* FROM taken AS t
) AS s ON TRUE
ORDER BY s.slice
