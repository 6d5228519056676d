-- Answers of processes that are gone, kept for late callers, end after a while. Nobody asks for a timer's:
-- its row only tells a save that is repeated after a lost answer that the first one succeeded.
DELETE FROM tasks
WHERE
    orphaned
    AND finished_time < coalesce(%(now)s::timestamptz, now()) - CASE
        WHEN task_type IN ('timeout', 'remove') THEN least(%(age)s::interval, interval '10 minutes')
        ELSE %(age)s::interval
    END
