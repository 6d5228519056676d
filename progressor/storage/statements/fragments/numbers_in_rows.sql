-- The highest numbers that are used where no index has them in order, by their sequences. Who reads the feed
-- knows processes and tasks of the last week by their numbers, whatever else is gone of them.
SELECT to_regclass(u.name) AS sequence, u.highest
FROM (
    VALUES
    (
        'progressor.tasks_task_id_seq',
        greatest(
            (SELECT max(task_id) FROM progressor.tasks),
            (SELECT max(task_id) FROM progressor.events),
            (SELECT max(task_id) FROM progressor.outbox),
            (SELECT max(n.task_id) FROM progressor.feed AS f CROSS JOIN unnest(f.task_ids) AS n (task_id))
        )
    ),
    (
        'progressor.processes_process_no_seq',
        (SELECT max(n.process_no) FROM progressor.feed AS f CROSS JOIN unnest(f.process_nos) AS n (process_no))
    )
) AS u (name, highest)
