-- sweep, seventh: lock the processes of which something is old, in the order of their numbers, but those that
-- others hold. The first of them is locked already.
SELECT p.process_no
FROM progressor.processes AS p
WHERE p.process_no = ANY (%(process_no)s::bigint[])
ORDER BY p.process_no
FOR NO KEY UPDATE SKIP LOCKED
