-- Sequences that would give again a number that stands in a table.
SELECT n.sequence, c.relname::text AS name, n.last, n.highest
FROM (
    SELECT
        u.sequence,
        u.highest,
        -- One that was never used has given none. Who must not use it is not told, and finds nothing.
        CASE
            WHEN has_sequence_privilege(u.sequence, 'USAGE, SELECT')
                THEN coalesce(pg_sequence_last_value(u.sequence), 0)
        END AS last
    FROM (
        VALUES
        (
            'progressor.processes_process_no_seq'::regclass,
            greatest(
                (SELECT max(process_no) FROM progressor.processes),
                (SELECT max(process_no) FROM progressor.removed_processes)
            )
        ),
        (
            'progressor.tasks_task_id_seq',
            greatest(
                (SELECT max(task_id) FROM progressor.tasks),
                (SELECT max(task_id) FROM progressor.kept_answers),
                (SELECT max(task_id) FROM progressor.task_marks)
            )
        ),
        ('progressor.namespaces_namespace_no_seq', (SELECT max(namespace_no) FROM progressor.namespaces)),
        ('progressor.groups_group_no_seq', (SELECT max(group_no) FROM progressor.groups)),
        ('progressor.bulks_bulk_id_seq', (SELECT max(bulk_id) FROM progressor.bulks)),
        ('progressor.outbox_sent_no_seq', (SELECT max(sent_no) FROM progressor.outbox)),
        ('progressor.feed_feed_id_seq', (SELECT max(feed_id) FROM progressor.feed)),
        ('progressor.parked_parked_no_seq', (SELECT max(parked_no) FROM progressor.parked))
    ) AS u (sequence, highest)
) AS n
JOIN pg_class AS c ON c.oid = n.sequence
WHERE n.last < n.highest
