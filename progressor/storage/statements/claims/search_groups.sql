-- Claim the tasks that wait longest in groups with room, behind lock_groups. The row in running is written
-- first; only tasks that were captured leave the schedule.
WITH
-- include due_in_groups

-- include started_with_values

-- include taken

-- include with_timers
