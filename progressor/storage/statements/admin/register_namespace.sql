-- Publish a namespace that a worker serves. An operator's pause stays.
INSERT INTO progressor.namespaces (name, options, schemas)
VALUES (%(name)s::text, %(options)s::text::jsonb, %(schemas)s::text::jsonb)
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, schemas = excluded.schemas, updated_at = now()
