-- sweep, fifth: delete the oldest tasks of locked processes that have expired, up to `rows` and `bytes` but
-- one at least, and note up to which number a process may have lost tasks. There may be more if all that
-- were found did not have room.
WITH young AS MATERIALIZED (
    -- include first_young_task
),

old_task AS MATERIALIZED (
    SELECT
        its.process_no, its.task_id,
        sum(its.bytes) OVER (
            ORDER BY its.process_no, its.task_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM (
        SELECT t.process_no, t.task_id, t.bytes
        FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
        CROSS JOIN young AS y
        CROSS JOIN LATERAL (
            SELECT p.process_no, p.corrupted_by
            FROM progressor.processes AS p
            WHERE p.process_no = i.process_no
            OFFSET 0
        ) AS p
        CROSS JOIN LATERAL (
            SELECT
                t.process_no, t.task_id,
                coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0)
                + coalesce(octet_length(t.response), 0) AS bytes
            FROM progressor.tasks AS t
            WHERE
                t.process_no = p.process_no
                AND t.task_id <= y.task_id
                AND (
                    -- include has_expired
                )
            ORDER BY t.task_id
            LIMIT %(rows)s::bigint
        ) AS t
        LIMIT %(rows)s::bigint
    ) AS its
),

gone AS (
    DELETE FROM progressor.tasks AS t
    USING old_task AS i
    WHERE
        t.process_no = ANY (ARRAY[i.process_no]) AND t.task_id = i.task_id
        AND coalesce(i.bytes_before, 0) < %(bytes)s::bigint
    RETURNING t.process_no, t.task_id
),

noted AS (
    UPDATE progressor.processes AS p
    SET swept_until = greatest(p.swept_until, i.task_id)
    FROM (SELECT g.process_no, max(g.task_id) AS task_id FROM gone AS g GROUP BY g.process_no) AS i
    WHERE p.process_no = ANY (ARRAY[i.process_no])
)

SELECT
    count(*) AS deleted,
    (SELECT count(*) FROM old_task) = %(rows)s::bigint
    OR EXISTS (SELECT FROM old_task WHERE bytes_before >= %(bytes)s::bigint) AS has_more
FROM gone
