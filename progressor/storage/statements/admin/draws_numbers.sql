-- Whether this role may draw numbers for processes and tasks, and see those that are used.
SELECT bool_and(
    CASE c.relkind
        WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE')
        ELSE has_table_privilege(c.oid, 'SELECT')
    END
)
FROM pg_class AS c
WHERE c.oid = ANY (
    ARRAY[
        'progressor.processes', 'progressor.tasks', 'progressor.events', 'progressor.removed_processes',
        'progressor.feed_leftovers', 'progressor.kept_answers', 'progressor.task_marks', 'progressor.namespaces',
        'progressor.groups', 'progressor.bulks', 'progressor.feed', 'progressor.parked',
        'progressor.processes_process_no_seq', 'progressor.tasks_task_id_seq'
    ]::regclass[]
)
