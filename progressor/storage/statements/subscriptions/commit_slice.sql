-- Move the checkpoint of a slice, if its lease still holds: no row means that another reader has it, or that a
-- fail-over has lost what was read, with the place behind it: from there nobody could go on. Or it has lost
-- the checkpoint to which this reader has moved it before, the `known_` one, and with that what a projection
-- wrote. With it go what was parked and is done now, and what is to be parked. An entry of a process whose
-- last one is to be tried again is tried behind it.
--
--   held            the slice
--   done, parked    what changes in `parked`
WITH held AS MATERIALIZED (
    UPDATE progressor.subscription_slices AS s
    SET
        position = %(position)s::bigint, item = %(item)s::bigint, n = %(n)s::bigint,
        mark = %(mark)s::bigint, epoch = %(epoch)s::bigint,
        walk = %(walk)s::bigint, walk_n = %(walk_n)s::bigint,
        committed_at = now(), failing_since = NULL, attempts = 0, error = NULL, parks = FALSE
    WHERE
        s.name = %(name)s::text AND s.slice = %(slice)s::bigint
        AND s.lease = %(lease)s::bigint AND s.reader_id IS NOT NULL
        -- Further than that it is after a commit without an answer.
        AND (s.position, s.item, s.n)
        >= (%(known_position)s::bigint, %(known_item)s::bigint, %(known_n)s::bigint)
        AND (s.walk IS NULL OR (s.walk, s.walk_n) >= (%(known_walk)s::bigint, %(known_walk_n)s::bigint))
        AND EXISTS (
            SELECT
            FROM progressor.feed_head AS h
            WHERE h.epoch = %(epoch)s::bigint AND h.position >= %(position)s::bigint
        )
        AND NOT EXISTS (
            SELECT
            FROM (
                SELECT
                    -- include row_mark
                FROM progressor.feed AS f
                WHERE f.position = ANY (ARRAY[%(position)s::bigint])
                OFFSET 0
            ) AS f
            WHERE %(mark)s::bigint NOT IN (0, f.mark)
        )
    RETURNING s.name, s.slice
),

done AS (
    DELETE FROM progressor.parked AS p
    USING held AS h, unnest(%(done)s::bigint[]) AS d (parked_no)
    WHERE p.parked_no = ANY (ARRAY[d.parked_no]) AND p.name || '' = h.name
),

parked AS (
    INSERT INTO progressor.parked (
        name, slice, process_no, namespace, process_id, kind, n, task_id, timestamp, position, attempts,
        error, action
    )
    SELECT
        h.name, h.slice, i.process_no, i.namespace, i.process_id, i.kind, i.n, i.task_id, i.timestamp,
        i.place, i.attempts, i.error,
        CASE WHEN before.is_wanted THEN 'r' END
    FROM held AS h
    CROSS JOIN unnest(
        %(parked_process_no)s::bigint[], %(parked_namespace)s::text[], %(parked_process_id)s::text[],
        %(parked_kind)s::text[], %(parked_n)s::bigint[], %(parked_task_id)s::bigint[],
        %(parked_timestamp)s::timestamptz[], %(parked_place)s::text[], %(parked_attempts)s::bigint[],
        %(parked_error)s::text[]
    ) WITH ORDINALITY AS i (
        process_no, namespace, process_id, kind, n, task_id, timestamp, place, attempts, error, ord
    )
    LEFT JOIN LATERAL (
        SELECT p.action IS NOT NULL AS is_wanted
        FROM progressor.parked AS p
        WHERE
            p.name = h.name AND p.namespace = i.namespace AND p.process_id = i.process_id
            AND p.parked_no <> ALL (%(done)s::bigint[])
        -- In this spelling one index alone has the order.
        ORDER BY p.parked_no + 0 DESC
        LIMIT 1
    ) AS before ON TRUE
    ORDER BY i.ord
    -- An earlier try of this transaction may have parked them.
    ON CONFLICT (name, position) DO NOTHING
)

SELECT h.slice FROM held AS h
