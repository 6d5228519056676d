-- Processes that this transaction changed without a step of their own: append them to the feed of their
-- namespace, if it has one. This comes after the statements that change them. The proof is the version of
-- the process: this transaction wrote it. Without numbers it is of the processes that were locked by name.
-- A break has the time that it has in the process: from the beginning it is told with that.
INSERT INTO progressor.feed (
    appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids, event_counts
)
SELECT
    CASE
        WHEN %(kind)s::text = 'b' THEN max(p.status_changed_at)
        ELSE coalesce(%(now)s::timestamptz, statement_timestamp())
    END,
    n.name, string_agg(%(kind)s::text, ''),
    array_agg(p.process_no), array_agg(p.process_id), array_agg(p.corrupted_by),
    array_agg(p.last_event_id), array_agg(0)
FROM unnest(
    coalesce(%(process_no)s::bigint[], (SELECT current_setting('prg.locked')::bigint[]))
) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT p.process_no, p.process_id, p.namespace_no, p.status_changed_at, p.corrupted_by, p.last_event_id
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no AND p.xmin = pg_current_xact_id()::xid
    OFFSET 0
) AS p
JOIN progressor.namespaces AS n
    ON n.namespace_no = ANY (ARRAY[p.namespace_no]) AND (n.options ->> 'feed')::boolean
GROUP BY n.name
