-- Lock the rows of processes, in the order of their numbers: the first statement of every transaction that
-- changes anything of a process. It reads nothing else: its snapshot is older than its locks.
SELECT p.process_no
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
JOIN progressor.processes AS p ON p.process_no = ANY (ARRAY[i.process_no])
-- Ordered by the item, not by the row, or the planner would read the index in its order.
ORDER BY i.process_no
FOR NO KEY UPDATE OF p
