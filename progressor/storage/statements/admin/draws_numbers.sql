-- Whether this role may draw numbers for processes, and see theirs.
SELECT
    has_sequence_privilege('progressor.processes_process_no_seq', 'USAGE')
    AND has_table_privilege('progressor.processes', 'SELECT')
