-- End a token. The row stays: it says that callers of this database need a token.
UPDATE progressor.tokens AS t
SET revoked_at = coalesce(%(now)s::timestamptz, now())
WHERE t.token_id = %(token_id)s::text AND t.revoked_at IS NULL
