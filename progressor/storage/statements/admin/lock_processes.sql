-- A process finds its namespace in the statement that makes it. So behind this lock all processes that a
-- namespace will ever have can be seen, or their start finds the namespace gone.
LOCK TABLE progressor.processes IN SHARE MODE
