-- sweep, before its first lock: wait for a process so long at most. It holds the row of its walk, which no step
-- reads, and no process: while it waits, no step waits for what it holds.
SELECT set_config('lock_timeout', %(lock_timeout)s::text, TRUE) AS lock_timeout
