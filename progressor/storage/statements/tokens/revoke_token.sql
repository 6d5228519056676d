-- Revoke a token. The row stays, because with any token in the table all callers of this database need one.
UPDATE progressor.tokens AS t
SET revoked_at = coalesce(%(now)s::timestamptz, now())
WHERE t.token_id = %(token_id)s::text AND t.revoked_at IS NULL
RETURNING t.token_id
