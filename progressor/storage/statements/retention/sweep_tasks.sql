-- sweep, eighth: delete the tasks of locked processes that have expired, each from its first to its last, and
-- note up to which number a process may have lost tasks. What a process needs is read again behind its lock;
-- a bulk that began to repair it has come first. Where there is an archive, `only` what is in it goes.
WITH old_task AS MATERIALIZED (
    SELECT p.process_no, t.task_id
    FROM unnest(%(process_no)s::bigint[], %(first)s::bigint[], %(last)s::bigint[])
    AS i (process_no, first, last)
    CROSS JOIN LATERAL (
        SELECT p.process_no, p.corrupted_by
        FROM progressor.processes AS p
        WHERE
            p.process_no = i.process_no
            AND p.process_no <> ALL (ARRAY(SELECT b.process_no FROM progressor.bulk_repairs AS b))
        OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT t.task_id
        FROM progressor.tasks AS t
        WHERE
            t.process_no = p.process_no
            AND t.task_id BETWEEN i.first AND i.last
            AND (
                -- include has_expired
            )
            AND (%(only)s::bigint[] IS NULL OR t.task_id = ANY (%(only)s::bigint[]))
        OFFSET 0
    ) AS t
),

gone AS (
    DELETE FROM progressor.tasks AS t
    USING old_task AS i
    WHERE t.process_no = ANY (ARRAY[i.process_no]) AND t.task_id = i.task_id
    RETURNING t.process_no, t.task_id
),

noted AS (
    UPDATE progressor.processes AS p
    SET swept_until = greatest(p.swept_until, i.task_id)
    FROM (SELECT g.process_no, max(g.task_id) AS task_id FROM gone AS g GROUP BY g.process_no) AS i
    WHERE p.process_no = ANY (ARRAY[i.process_no])
)

SELECT count(*) AS deleted FROM gone
