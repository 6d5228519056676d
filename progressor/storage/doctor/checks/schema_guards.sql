-- The tables, columns, keys, constraints, indexes, types and views are as this release makes them, and valid.
-- Reads: the catalogue.
-- What keys hold (one running task, one waiting timer, one task per idempotency key) is not counted again.
SELECT NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id, d.found
FROM unnest(%(differences)s::text[]) AS d (found)
