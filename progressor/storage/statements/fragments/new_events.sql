INSERT INTO progressor.events (process_no, event_id, task_id, timestamp, metadata, payload)
SELECT
    e.process_no, e.event_id, e.task_id,
    coalesce(%(now)s::timestamptz, statement_timestamp()), e.metadata, e.payload
FROM unnest(
    %(event_process_no)s::bigint[], %(event_task_id)s::bigint[], %(event_id)s::bigint[],
    %(event_metadata)s::jsonb[], %(event_payload)s::bytea[]
) AS e (process_no, task_id, event_id, metadata, payload)
