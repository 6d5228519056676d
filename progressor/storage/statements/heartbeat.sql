-- A worker lives: its row is made or renewed.
INSERT INTO progressor.workers (worker_id, host, namespaces, free_slots)
VALUES (
    %(worker_id)s::bigint, %(host)s::text, %(namespaces)s::text[], %(free_slots)s::text::jsonb
)
ON CONFLICT (worker_id) DO UPDATE
SET namespaces = excluded.namespaces, free_slots = excluded.free_slots, seen_at = now()
