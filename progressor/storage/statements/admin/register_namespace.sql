-- Publish a namespace that a worker serves. An operator's pause stays. With `since`, when this worker published it
-- last: only if that is lost, and nobody has published it since then.
INSERT INTO progressor.namespaces (name, options, schemas)
VALUES (%(name)s::text, %(options)s::text::jsonb, %(schemas)s::text::jsonb)
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, schemas = excluded.schemas, updated_at = now()
WHERE %(since)s::timestamptz IS NULL OR namespaces.updated_at < %(since)s::timestamptz
RETURNING updated_at
