-- What an operator wants tried again or skipped of a slice, in order, with the payloads of events.
SELECT
    p.parked_no, p.process_no, p.kind AS letter, p.namespace, p.process_id, p.n, p.task_id, p.timestamp,
    e.metadata, e.payload, p.position, p.action
FROM progressor.parked AS p
LEFT JOIN LATERAL (
    SELECT e.metadata, e.payload
    FROM progressor.events AS e
    WHERE p.kind = 'e' AND e.process_no = p.process_no AND e.event_id = p.n
    OFFSET 0
) AS e ON TRUE
WHERE p.name = %(name)s::text AND p.slice = %(slice)s::bigint AND p.action IS NOT NULL
ORDER BY p.parked_no + 0
LIMIT %(limit)s::bigint
