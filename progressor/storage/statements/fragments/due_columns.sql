-- By their names: a later release may add a column to a table, under any name, while this one goes on.
p.process_no, p.namespace_no, p.process_id, p.status, p.previous_status, p.status_changed_at, p.created_at,
p.detail, p.aux_state, p.metadata, p.corrupted_by, p.last_event_id, p.birth, p.group_no,
p.xmin AS version, s.xmin AS task_version, s.task_id, s.task_type
