-- Lock the tables that saving a step writes to, as a step would, without waiting. If the collector cannot,
-- no worker can save either, and none of their steps is late for that.
LOCK TABLE
progressor.processes, progressor.removed_processes, progressor.tasks, progressor.running,
progressor.schedule, progressor.events, progressor.outbox, progressor.feed, progressor.feed_leftovers
IN ROW EXCLUSIVE MODE NOWAIT
