-- What is parked, of all subscriptions or one, behind an entry.
SELECT
    p.parked_no, p.name, p.namespace, p.process_id, p.kind, p.n, p.task_id, p.timestamp, p.position,
    p.parked_at, p.attempts, p.error, p.action
FROM progressor.parked AS p
WHERE
    p.parked_no > %(behind)s::bigint
    -- By the key, so that a page of a subscription with many is not sorted.
    AND (%(name)s::text IS NULL OR p.name || '' = %(name)s::text)
ORDER BY p.parked_no
LIMIT %(limit)s::bigint
