-- A life as it is now, with the version of its row and the time of its last event; no row once it is removed.
SELECT
    p.process_no, p.status, p.previous_status, p.status_changed_at, p.created_at, p.detail, p.metadata,
    p.corrupted_by, p.last_event_id, p.birth, p.first_event_id,
    CASE WHEN %(state)s::boolean THEN p.aux_state END AS aux_state,
    p.xmin::text::bigint AS version,
    (
        SELECT e.timestamp
        FROM progressor.events AS e
        WHERE e.process_no = p.process_no AND e.event_id = p.last_event_id
    ) AS last_at
FROM progressor.processes AS p
WHERE p.process_no = %(process_no)s::bigint AND p.birth IS NOT DISTINCT FROM %(birth)s::bigint
