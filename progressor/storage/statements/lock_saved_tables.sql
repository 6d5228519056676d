-- A collector's own way into the tables that saving a step writes to: who else may not write to them, cannot
-- save, and is not late for that.
LOCK TABLE
progressor.processes, progressor.removed_processes, progressor.tasks, progressor.running,
progressor.schedule, progressor.events
IN ROW EXCLUSIVE MODE NOWAIT
