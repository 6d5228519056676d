-- drop_leftovers, first: delete rows of removed processes, up to `rows` and `bytes` but one row at least:
-- events of large ones, requests that waited on them, and the tasks of those whose answers were kept long
-- enough. Nobody else uses their numbers. The size of a value is known without reading it; deleting it
-- takes its time.
--
--   ended, deserted        processes with events left; with requests left
--   forgotten              processes whose answers are kept no longer
--   old_event, old_task    their first rows, each with the bytes of all before it
--   event                  the events that have room, deleted
--   request, answer, task  the tasks that have room, deleted with all rows that refer to them
WITH ended AS MATERIALIZED (
    SELECT r.process_no
    FROM progressor.removed_processes AS r
    WHERE r.has_events
    ORDER BY r.process_no
    LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),

deserted AS MATERIALIZED (
    SELECT r.process_no
    FROM progressor.removed_processes AS r
    WHERE r.has_requests
    ORDER BY r.process_no
    LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),

forgotten AS MATERIALIZED (
    SELECT r.process_no
    FROM progressor.removed_processes AS r
    WHERE r.kept_until < coalesce(%(now)s::timestamptz, now()) AND NOT r.has_requests
    ORDER BY r.kept_until
    LIMIT %(limit)s::bigint
    FOR UPDATE SKIP LOCKED
),

old_event AS MATERIALIZED (
    SELECT
        its.process_no, its.event_id,
        sum(its.bytes) OVER (
            ORDER BY its.process_no, its.event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM (
        SELECT e.process_no, e.event_id, e.bytes
        FROM ended
        CROSS JOIN LATERAL (
            SELECT e.process_no, e.event_id, octet_length(e.payload) AS bytes
            FROM progressor.events AS e
            WHERE e.process_no = ended.process_no
            ORDER BY e.event_id
            LIMIT %(rows)s::bigint
        ) AS e
        LIMIT %(rows)s::bigint
    ) AS its
),

old_task AS MATERIALIZED (
    SELECT
        its.process_no, its.task_id,
        sum(its.bytes) OVER (
            ORDER BY its.process_no, its.task_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM (
        SELECT t.process_no, t.task_id, t.bytes
        FROM deserted
        CROSS JOIN LATERAL (
            SELECT s.process_no, s.task_id
            FROM progressor.schedule AS s
            WHERE s.process_no = deserted.process_no
            ORDER BY s.task_id
            LIMIT %(rows)s::bigint
        ) AS s
        CROSS JOIN LATERAL (
            SELECT
                t.process_no, t.task_id,
                coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0) AS bytes
            FROM progressor.tasks AS t
            WHERE t.process_no = s.process_no AND t.task_id = s.task_id
            OFFSET 0
        ) AS t
        UNION ALL
        SELECT t.process_no, t.task_id, t.bytes
        FROM forgotten
        CROSS JOIN LATERAL (
            SELECT
                t.process_no, t.task_id,
                coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0)
                + coalesce(octet_length(t.response), 0) AS bytes
            FROM progressor.tasks AS t
            WHERE t.process_no = forgotten.process_no
            ORDER BY t.task_id
            LIMIT %(rows)s::bigint
        ) AS t
        LIMIT %(rows)s::bigint
    ) AS its
),

event AS (
    DELETE FROM progressor.events AS e
    USING old_event AS i
    WHERE
        e.process_no = ANY (ARRAY[i.process_no]) AND e.event_id = i.event_id
        AND coalesce(i.bytes_before, 0) < %(bytes)s::bigint
),

request AS (
    DELETE FROM progressor.schedule AS s
    USING old_task AS i
    WHERE
        s.process_no = ANY (ARRAY[i.process_no]) AND s.task_id = i.task_id
        AND coalesce(i.bytes_before, 0) < %(bytes)s::bigint
),

answer AS (
    DELETE FROM progressor.kept_answers AS k
    USING old_task AS i
    WHERE
        k.task_id = ANY (ARRAY[i.task_id]) AND k.process_no = ANY (ARRAY[i.process_no])
        AND coalesce(i.bytes_before, 0) < %(bytes)s::bigint
),

task AS (
    DELETE FROM progressor.tasks AS t
    USING old_task AS i
    WHERE
        t.process_no = ANY (ARRAY[i.process_no]) AND t.task_id = i.task_id
        AND coalesce(i.bytes_before, 0) < %(bytes)s::bigint
)

-- There may be more if not all that was found had room, or if the look ended at its limit.
SELECT
    greatest((SELECT count(*) FROM old_event), (SELECT count(*) FROM old_task)) = %(rows)s::bigint
    OR EXISTS (SELECT FROM old_event WHERE bytes_before >= %(bytes)s::bigint)
    OR EXISTS (SELECT FROM old_task WHERE bytes_before >= %(bytes)s::bigint) AS has_more
