-- Note the use of a token, unless that was noted lately: not every request writes.
UPDATE progressor.tokens AS t
SET last_used_at = coalesce(%(now)s::timestamptz, now())
WHERE
    t.token_id = %(token_id)s::text
    AND (
        t.last_used_at IS NULL
        OR t.last_used_at < coalesce(%(now)s::timestamptz, now()) - %(granularity)s::interval
    )
