-- sweep, fifth: the tasks of these processes that have expired, in their order, each process from the number
-- `behind` on: up to `reads` that are read, `rows` and `bytes` that have expired, but one at least. `is_cut`:
-- there may be more behind `last_read` of the last process. Nothing is locked yet, so this may take its time.
-- Once it has found so many rows it reads no more: `rows_before` grows, which PostgreSQL knows (a run condition).
WITH its AS (
    SELECT i.ord, i.process_no, t.task_id, t.bytes, t.has_expired
    FROM unnest(%(process_no)s::bigint[], %(corrupted_by)s::bigint[], %(behind)s::bigint[])
    WITH ORDINALITY AS i (process_no, corrupted_by, behind, ord)
    CROSS JOIN LATERAL (
        SELECT
            t.task_id,
            coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0)
            + coalesce(octet_length(t.response), 0) AS bytes,
            coalesce(
                (
                    -- include has_expired
                ),
                FALSE
            ) AS has_expired
        FROM (SELECT i.process_no, i.corrupted_by) AS p
        CROSS JOIN progressor.tasks AS t
        WHERE
            t.process_no = i.process_no
            AND t.task_id > i.behind
            AND t.task_id <= (
                -- The last number that a task had drawn soon after `tasks_before`: a higher one is too young.
                -- Before the first mark nothing is known, and all tasks are looked at.
                SELECT
                    coalesce(
                        (
                            SELECT m.task_id
                            FROM progressor.task_marks AS m
                            WHERE m.marked_at >= %(tasks_before)s::timestamptz
                            ORDER BY m.marked_at
                            LIMIT 1
                        ),
                        9223372036854775807
                    ) AS task_id
            )
        ORDER BY t.task_id
        LIMIT %(reads)s::bigint
    ) AS t
    -- The processes come in this order: nothing is sorted, and the limit ends the reading.
    ORDER BY i.ord
    LIMIT %(reads)s::bigint
),

counted AS (
    SELECT
        its.ord, its.process_no, its.task_id, its.has_expired, its.bytes,
        count(*) FILTER (WHERE its.has_expired) OVER before AS rows_before,
        coalesce(sum(its.bytes) FILTER (WHERE its.has_expired) OVER before, 0) AS bytes_before
    FROM its
    -- In the order in which they are read: by process, then by task.
    WINDOW before AS (ORDER BY its.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)

SELECT
    c.process_no, max(c.task_id) AS last_read,
    min(c.task_id) FILTER (WHERE c.has_expired) AS first_old,
    max(c.task_id) FILTER (WHERE c.has_expired) AS last_old,
    count(*) AS reads,
    sum(count(*)) OVER () = %(reads)s::bigint
    OR sum(count(*) FILTER (WHERE c.has_expired)) OVER () = %(rows)s::bigint
    OR sum(sum(c.bytes) FILTER (WHERE c.has_expired)) OVER () >= %(bytes)s::bigint AS is_cut
FROM counted AS c
WHERE c.rows_before < %(rows)s::bigint AND c.bytes_before < %(bytes)s::bigint
GROUP BY c.ord, c.process_no
ORDER BY c.ord
