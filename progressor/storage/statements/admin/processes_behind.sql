-- At the start of a program that draws numbers: whether the sequence of processes is behind their highest
-- number, which stands at the end of an index. Where rows were copied without their sequences, it is, and with
-- it all others.
SELECT s.last, s.highest
FROM (
    SELECT
        coalesce(pg_sequence_last_value('progressor.processes_process_no_seq'::regclass), 0) AS last,
        (SELECT max(p.process_no) FROM progressor.processes AS p) AS highest
) AS s
WHERE s.last < s.highest
