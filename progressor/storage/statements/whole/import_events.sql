-- import, sixth: insert its events.
INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT i.process_no, i.event_id, i.task_id, i.timestamp, i.metadata, i.payload
FROM unnest(
    %(process_no)s::bigint[], %(event_id)s::bigint[], %(task_id)s::bigint[], %(timestamp)s::timestamptz[],
    %(event_metadata)s::jsonb[], %(event_payload)s::bytea[]
) AS i (process_no, event_id, task_id, timestamp, metadata, payload)
