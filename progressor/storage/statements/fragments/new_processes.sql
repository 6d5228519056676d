INSERT INTO progressor.processes (
    process_no, namespace_no, process_id, status, status_changed_at, created_at, metadata, birth
)
OVERRIDING SYSTEM VALUE
SELECT process_no, namespace_no, process_id, 'init', now, now, metadata, lease
FROM item
ORDER BY namespace_no, process_id COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING process_no
