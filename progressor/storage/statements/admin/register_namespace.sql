-- Publish a namespace that a worker serves. An operator's pause stays. With `since`, when this worker published it
-- last, it does so as of then: after a fail-over the newest of all workers counts, whichever comes first.
INSERT INTO progressor.namespaces (name, options, schemas, updated_at)
VALUES (
    %(name)s::text, %(options)s::text::jsonb, %(schemas)s::text::jsonb, coalesce(%(since)s::timestamptz, now())
)
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, schemas = excluded.schemas, updated_at = excluded.updated_at
WHERE %(since)s::timestamptz IS NULL OR namespaces.updated_at < %(since)s::timestamptz
RETURNING updated_at
