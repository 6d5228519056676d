-- The tables, columns, keys, constraints, indexes, types and views are those of this release, and valid.
-- Reads: the catalogue.
-- Rules that keys enforce (one running task, one waiting timer, one task per idempotency key) are not counted.
SELECT NULL::text AS namespace, NULL::text AS process_id, NULL::bigint AS task_id, d.found
FROM unnest(%(differences)s::text[]) AS d (found)
