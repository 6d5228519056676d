-- The highest numbers that are used, by their sequences, as the ends of indexes show them. Tasks have no such
-- index: those of the newest process, kept answers and the marks of retention stand for all.
SELECT to_regclass(u.name) AS sequence, u.highest
FROM (
    VALUES
    (
        'progressor.processes_process_no_seq',
        greatest(
            (SELECT max(process_no) FROM progressor.processes),
            (SELECT max(process_no) FROM progressor.tasks),
            (SELECT max(process_no) FROM progressor.events),
            (SELECT max(process_no) FROM progressor.removed_processes),
            (SELECT max(process_no) FROM progressor.feed_leftovers)
        )
    ),
    (
        'progressor.tasks_task_id_seq',
        greatest(
            (
                SELECT max(task_id) FROM progressor.tasks
                WHERE process_no = (SELECT max(process_no) FROM progressor.tasks)
            ),
            (SELECT max(task_id) FROM progressor.kept_answers),
            (SELECT max(task_id) FROM progressor.task_marks)
        )
    ),
    ('progressor.namespaces_namespace_no_seq', (SELECT max(namespace_no) FROM progressor.namespaces)),
    ('progressor.groups_group_no_seq', (SELECT max(group_no) FROM progressor.groups)),
    ('progressor.bulks_bulk_id_seq', (SELECT max(bulk_id) FROM progressor.bulks)),
    ('progressor.feed_feed_id_seq', (SELECT max(feed_id) FROM progressor.feed)),
    ('progressor.parked_parked_no_seq', (SELECT max(parked_no) FROM progressor.parked))
) AS u (name, highest)
