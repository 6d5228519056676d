-- Claim the tasks that wait longest in groups with room, behind lock_groups. The row in running is written
-- first; only tasks that were captured leave the schedule.
-- [rated
--
--   due                         the tasks that are claimed and locked
--   charged, charged_groups     when the rate of the namespace, and that of each group, admits the next one
--   captured, started, taken    their rows in running, that they run, and that they leave the schedule
-- rated]
WITH
-- include due_in_groups

-- include started_with_values

-- include taken

-- include with_timers
