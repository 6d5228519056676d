INSERT INTO progressor.feed (
    appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids, event_counts
)
SELECT
    f.now, f.namespace, string_agg(f.kind, ''), array_agg(f.process_no), array_agg(f.process_id),
    array_agg(f.task_id), array_agg(f.last_event_id), array_agg(f.event_count)
FROM (
    SELECT
        i.now, i.process_no, i.task_id, i.last_event_id, (%(feed_kind)s::text[])[i.ord] AS kind,
        (%(feed_namespace)s::text[])[i.ord] AS namespace, (%(feed_process_id)s::text[])[i.ord] AS process_id,
        (%(feed_event_count)s::bigint[])[i.ord] AS event_count
    FROM item AS i
) AS f
WHERE f.kind IS NOT NULL
GROUP BY f.now, f.namespace
