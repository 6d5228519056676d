t.status = 'cancelled' AND t.task_type IN ('call', 'notify') AND NOT starts_with(t.name, 'progressor:')
