-- One token, or all of them. The remaining time is returned as a duration, because only PostgreSQL's clock
-- counts.
SELECT
    t.token_id, t.secret_hash, t.name, t.scopes, t.namespaces, t.created_at, t.expires_at, t.revoked_at,
    t.last_used_at, t.expires_at - coalesce(%(now)s::timestamptz, now()) AS time_left
FROM progressor.tokens AS t
WHERE %(token_id)s::text IS NULL OR t.token_id = %(token_id)s::text
ORDER BY t.created_at, t.token_id
