-- A subquery: the last number that a task had drawn soon after `tasks_before`: what has a higher one is too
-- young. Before the first mark nothing is known, and all tasks are looked at.
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
