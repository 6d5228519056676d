-- After a claim in groups that PostgreSQL refused because of one row: as search_groups, without reading a value
-- of any task. Each is then read alone.
-- [rated
--
--   due                         the tasks that are claimed and locked
--   charged, charged_groups     when the rate of the namespace, and that of each group, admits the next one
--   captured, started, taken    their rows in running, that they run, and that they leave the schedule
-- rated]
WITH
-- include due_in_groups

started AS (
    UPDATE progressor.tasks AS t
    SET
        status = 'running', running_time = d.running_time,
        worker_id = %(worker_id)s::bigint, lease = %(lease)s::bigint
    FROM due AS d
    WHERE t.process_no = ANY (ARRAY[d.process_no]) AND t.task_id = d.task_id
    RETURNING t.process_no, t.task_id
),

-- include taken

SELECT process_no, task_id FROM started
