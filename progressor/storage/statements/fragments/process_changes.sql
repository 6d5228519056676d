status = i.status::progressor.process_status,
previous_status = CASE
    WHEN p.status = i.status::progressor.process_status THEN p.previous_status
    ELSE p.status
END,
status_changed_at = CASE
    WHEN p.status = i.status::progressor.process_status THEN p.status_changed_at
    ELSE i.now
END,
aux_state = coalesce(i.aux_state, p.aux_state),
metadata = coalesce(i.metadata, p.metadata),
last_event_id = i.last_event_id
