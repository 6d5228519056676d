-- Store a token. Its id was drawn before the first try, so a repetition finds the token of an earlier try.
INSERT INTO progressor.tokens (token_id, secret_hash, name, scopes, namespaces, created_at, expires_at)
VALUES (
    %(token_id)s::text, %(secret_hash)s::bytea, %(name)s::text, %(scopes)s::text[], %(namespaces)s::text[],
    coalesce(%(now)s::timestamptz, now()),
    coalesce(%(now)s::timestamptz, now()) + %(lifetime)s::interval
)
ON CONFLICT (token_id) DO NOTHING
