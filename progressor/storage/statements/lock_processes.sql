-- Whoever makes a process finds its namespace in the statement that makes it. So behind this lock all processes
-- that will ever be of a namespace can be seen, or their start finds the namespace gone.
LOCK TABLE progressor.processes IN SHARE MODE
