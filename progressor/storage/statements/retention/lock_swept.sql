-- sweep, seventh: lock the processes of which something is old, in the order of their numbers. One that a step
-- holds is left to the next walk: this waits for nobody, so nobody waits longer because of it.
SELECT p.process_no
FROM progressor.processes AS p
WHERE p.process_no = ANY (%(process_no)s::bigint[])
ORDER BY p.process_no
FOR NO KEY UPDATE SKIP LOCKED
