-- whole, third: the events of these processes, in their order.
SELECT e.process_no, e.event_id, e.task_id, e.timestamp, e.metadata, e.payload
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT e.* FROM progressor.events AS e WHERE e.process_no = i.process_no OFFSET 0
) AS e
ORDER BY e.process_no, e.event_id
