-- The events of a life behind the last one that its watcher knows, up to `limit` and to `bytes`, but one at
-- least. Those of a removed process may be left, whole if its namespace has a feed. Another life with its
-- number, after a fail-over or a restore, has events of its own. So has this one: `told_at` is the time of
-- the event that it has now where its watcher knows one.
SELECT
    e.event_id, e.timestamp, e.task_id, e.metadata, e.payload,
    (
        SELECT t.timestamp
        FROM progressor.events AS t
        WHERE t.process_no = %(process_no)s::bigint AND t.event_id = %(after)s::bigint
    ) AS told_at
FROM (
    SELECT
        e.event_id, e.timestamp, e.task_id, e.metadata, e.payload,
        sum(octet_length(e.payload)) OVER (
            ORDER BY e.event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM progressor.events AS e
    WHERE e.process_no = %(process_no)s::bigint AND e.event_id > %(after)s::bigint
    ORDER BY e.event_id
    LIMIT %(limit)s::bigint
) AS e
WHERE
    coalesce(e.bytes_before, 0) < %(bytes)s::bigint
    AND NOT EXISTS (
        SELECT
        FROM progressor.processes AS p
        WHERE p.process_no = %(process_no)s::bigint AND p.birth IS DISTINCT FROM %(birth)s::bigint
        OFFSET 0
    )
ORDER BY e.event_id
