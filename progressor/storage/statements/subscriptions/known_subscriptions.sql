-- The subscriptions, or one, as operators see them. The lag is counted in rows of the feed, which stand for
-- transactions, and in the age of the oldest that is not done. What is parked is counted up to `most`.
SELECT
    s.name, s.slices, s.created_at, i.readers, k.is_walking, k.behind, k.age, k.is_lost, k.failing_since, k.attempts,
    k.error, k.committed_at, p.parked, p.processes AS parked_processes
FROM progressor.subscriptions AS s
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(r.host ORDER BY r.host), '{}') AS readers
    FROM progressor.subscription_readers AS r
    WHERE r.name = s.name AND r.seen_at + r.lease_age > now() AND r.seen_at - r.lease_age < now()
    OFFSET 0
) AS i
CROSS JOIN LATERAL (
    SELECT
        bool_or(c.walk IS NOT NULL) AS is_walking,
        max(h.position - c.done) AS behind,
        coalesce(now() - min(f.appended_at), interval '0') AS age,
        bool_or(
            c.epoch <> h.epoch OR c.position > h.position OR c.done < h.dropped
            -- Another row is there than the one that was read.
            OR (c.mark <> 0 AND coalesce(r.mark <> c.mark, FALSE))
        ) AS is_lost,
        min(c.failing_since) AS failing_since, max(c.attempts) AS attempts,
        (array_agg(c.error ORDER BY c.failing_since) FILTER (WHERE c.error IS NOT NULL))[1] AS error,
        max(c.committed_at) AS committed_at
    FROM (
        -- A row of which entries are left, behind the item of the place, is not done.
        SELECT
            c.walk, c.epoch, c.position, c.mark, c.failing_since, c.attempts, c.error, c.committed_at,
            c.position - CASE WHEN c.item < 4611686018427387904 THEN 1 ELSE 0 END AS done
        FROM progressor.subscription_slices AS c
        WHERE c.name = s.name
    ) AS c
    CROSS JOIN progressor.feed_head AS h
    LEFT JOIN LATERAL (
        SELECT f.appended_at
        FROM progressor.feed AS f
        WHERE f.position > c.done
        ORDER BY f.position
        LIMIT 1
    ) AS f ON TRUE
    LEFT JOIN LATERAL (
        SELECT
            -- include row_mark
        FROM progressor.feed AS f
        WHERE f.position = ANY (ARRAY[c.position])
        OFFSET 0
    ) AS r ON TRUE
    OFFSET 0
) AS k
CROSS JOIN LATERAL (
    -- In the order of the index, by which those of one process stand together.
    SELECT count(*) AS parked, count(*) FILTER (WHERE p.is_first) AS processes
    FROM (
        SELECT
            (p.namespace, p.process_id) IS DISTINCT FROM (lag(p.namespace) OVER w, lag(p.process_id) OVER w)
            AS is_first
        FROM (
            SELECT p.namespace, p.process_id, p.parked_no + 0 AS parked_no
            FROM progressor.parked AS p
            WHERE p.name = s.name
            ORDER BY p.namespace, p.process_id, p.parked_no + 0
            LIMIT %(most)s::bigint
        ) AS p
        WINDOW w AS (ORDER BY p.namespace, p.process_id, p.parked_no)
    ) AS p
    OFFSET 0
) AS p
WHERE %(name)s::text IS NULL OR s.name = %(name)s::text
ORDER BY s.name
