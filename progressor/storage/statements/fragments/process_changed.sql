-- A step that changed nothing but its answer leaves the row as it is.
(
    p.status <> i.status::progressor.process_status OR p.last_event_id <> i.last_event_id
    OR i.aux_state IS NOT NULL OR i.metadata IS NOT NULL
)
