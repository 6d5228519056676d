-- sweep into an archive, fourth: the events of these processes, each from its first to its last.
SELECT p.process_id, p.created_at AS born, e.event_id, e.task_id, e.timestamp, e.metadata, e.payload
FROM unnest(%(process_no)s::bigint[], %(first)s::bigint[], %(last)s::bigint[])
AS i (process_no, first, last)
CROSS JOIN LATERAL (
    SELECT p.process_no, p.process_id, p.created_at
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no
    OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT e.*
    FROM progressor.events AS e
    WHERE e.process_no = p.process_no AND e.event_id BETWEEN i.first AND i.last
    OFFSET 0
) AS e
