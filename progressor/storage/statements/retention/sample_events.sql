-- Events of a namespace on a sample of pages: how many, and how many would be deleted.
SELECT
    count(*) AS events,
    count(*) FILTER (WHERE e.is_old) AS old_events,
    coalesce(sum(e.bytes) FILTER (WHERE e.is_old), 0)::bigint AS old_event_bytes
FROM (
    SELECT
        pg_column_size(e.*)::bigint AS bytes,
        coalesce(
            e.event_id <= p.last_event_id - %(events_last)s::bigint
            OR e.timestamp < %(events_before)s::timestamptz,
            FALSE
        ) AS is_old
    FROM progressor.events AS e TABLESAMPLE SYSTEM (%(millionths)s::bigint / 10000.0)
    INNER JOIN progressor.processes AS p ON p.process_no = e.process_no
    INNER JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
    WHERE n.name = %(namespace)s::text
) AS e
