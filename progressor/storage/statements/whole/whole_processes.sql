-- whole, first: these processes, with the names of their namespaces and groups.
SELECT
    p.process_no, n.name AS namespace, p.process_id, p.created_at, p.status, p.previous_status,
    p.status_changed_at, p.detail, p.corrupted_by, p.metadata, p.aux_state AS state, p.last_event_id,
    p.first_event_id, p.swept_until, p.rests_until, g.group_key AS "group"
FROM unnest(%(process_no)s::bigint[], %(birth)s::bigint[]) AS i (process_no, birth)
CROSS JOIN LATERAL (
    SELECT p.*
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no AND p.birth IS NOT DISTINCT FROM i.birth
    OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT n.name FROM progressor.namespaces AS n WHERE n.namespace_no = p.namespace_no OFFSET 0
) AS n
LEFT JOIN LATERAL (
    SELECT g.group_key FROM progressor.groups AS g WHERE g.group_no = p.group_no OFFSET 0
) AS g ON TRUE
