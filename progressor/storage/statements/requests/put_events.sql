-- put, second: its history, numbered from 1.
INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT
    %(process_no)s::bigint, e.event_id, %(task_id)s::bigint,
    coalesce(e.timestamp, %(now)s::timestamptz, now()), e.metadata, e.payload
FROM unnest(
    %(event_id)s::bigint[], %(event_timestamp)s::timestamptz[], %(event_metadata)s::jsonb[],
    %(event_payload)s::bytea[]
) AS e (event_id, timestamp, metadata, payload)
