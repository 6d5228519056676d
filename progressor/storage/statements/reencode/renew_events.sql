-- reencode, behind lock_swept: write payloads anew. One that is no longer what was read stays.
UPDATE progressor.events AS e
SET payload = i.value
FROM unnest(
    %(process_no)s::bigint[], %(id)s::bigint[], %(old_event)s::bytea[], %(event)s::bytea[]
) AS i (process_no, id, old, value)
WHERE e.process_no = ANY (ARRAY[i.process_no]) AND e.event_id = i.id AND e.payload = i.old
RETURNING e.process_no, e.event_id AS id, 0 AS n
