-- The depths of these mailboxes, counted up to `most`; the time since which the oldest request waits in
-- each; and their paces: how many of the last `steps` tasks before that one ended within `span`, and when
-- the first of them did. Ranges of the primary keys, each with a limit.
SELECT
    i.process_no,
    p.process_id,
    coalesce(%(now)s::timestamptz, now()) AS now,
    waiting.requests,
    waiting.oldest,
    ended.steps,
    ended.since
FROM unnest(%(process_no)s::bigint[]) AS i (process_no)
CROSS JOIN LATERAL (
    SELECT p.process_id FROM progressor.processes AS p WHERE p.process_no = i.process_no OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT count(*) AS requests, min(s.scheduled_time) AS oldest, min(s.task_id) AS task_id
    FROM (
        SELECT s.scheduled_time, s.task_id
        FROM progressor.schedule AS s
        WHERE s.process_no = i.process_no AND s.task_type IN ('init', 'call', 'notify', 'repair')
        ORDER BY s.task_id
        LIMIT %(most)s::bigint
    ) AS s
) AS waiting
CROSS JOIN LATERAL (
    SELECT count(*) AS steps, min(t.finished_time) AS since
    FROM (
        SELECT t.finished_time
        FROM progressor.tasks AS t
        WHERE t.process_no = i.process_no AND t.task_id < waiting.task_id
        ORDER BY t.task_id DESC
        LIMIT %(steps)s::bigint
    ) AS t
    WHERE t.finished_time > coalesce(%(now)s::timestamptz, now()) - %(span)s::interval
) AS ended
