-- import, third: insert the processes whose names are free, in the order of their names, as prepare_init
-- does; a row for each item. Their numbers are in the order of the items.
WITH item AS MATERIALIZED (
    SELECT i.*, n.namespace_no, g.group_no, nextval('progressor.processes_process_no_seq') AS process_no
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(birth)s::bigint[], %(created_at)s::timestamptz[],
        %(status)s::text[], %(previous_status)s::text[], %(status_changed_at)s::timestamptz[],
        %(detail)s::text[], %(corrupted_by)s::bigint[], %(metadata)s::jsonb[], %(state)s::bytea[],
        %(last_event_id)s::bigint[], %(first_event_id)s::bigint[], %(swept_until)s::bigint[],
        %(rests_until)s::timestamptz[], %(group_key)s::text[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, birth, created_at, status, previous_status, status_changed_at, detail,
        corrupted_by, metadata, state, last_event_id, first_event_id, swept_until, rests_until, group_key, ord
    )
    LEFT JOIN LATERAL (
        SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
    ) AS n ON TRUE
    LEFT JOIN LATERAL (
        SELECT g.group_no
        FROM progressor.groups AS g
        WHERE g.namespace_no = n.namespace_no AND g.group_key = i.group_key
        OFFSET 0
    ) AS g ON TRUE
),

process AS (
    INSERT INTO progressor.processes (
        process_no, namespace_no, process_id, birth, created_at, status, previous_status, status_changed_at,
        detail, corrupted_by, metadata, aux_state, last_event_id, first_event_id, swept_until, rests_until,
        group_no
    )
    OVERRIDING SYSTEM VALUE
    SELECT
        i.process_no, i.namespace_no, i.process_id, i.birth, i.created_at,
        i.status::progressor.process_status, i.previous_status::progressor.process_status,
        i.status_changed_at, i.detail, i.corrupted_by, i.metadata, i.state, i.last_event_id,
        i.first_event_id, i.swept_until, i.rests_until, i.group_no
    FROM item AS i
    WHERE i.namespace_no IS NOT NULL
    ORDER BY i.namespace_no, i.process_id COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING process_no, birth
)

SELECT
    i.namespace_no IS NOT NULL AS is_served, i.namespace_no, i.group_no,
    (SELECT p.process_no FROM process AS p WHERE p.birth = i.birth) AS process_no
FROM item AS i
ORDER BY i.ord
