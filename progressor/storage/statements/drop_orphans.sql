-- Answers of processes that are gone, kept for late callers, end after a while.
DELETE FROM tasks
WHERE orphaned AND finished_time < coalesce(%(now)s::timestamptz, now()) - %(age)s::interval
