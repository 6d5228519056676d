-- run_bulk, behind the locks of its processes and before their repairs: the calls and notifies that broke
-- them. A change of a timer is no request that is run again, nor is an init, a repair or a timer.
SELECT i.process_no, t.task_id
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT p.corrupted_by FROM progressor.processes AS p WHERE p.process_no = i.process_no OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT t.task_id
    FROM progressor.tasks AS t
    WHERE
        t.process_no = i.process_no AND t.task_id = p.corrupted_by
        AND t.task_type IN ('call', 'notify') AND NOT starts_with(t.name, 'progressor:')
    OFFSET 0
) AS t
