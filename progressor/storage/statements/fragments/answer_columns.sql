-- What a caller is told of a task.
t.process_no, t.task_id, t.status, t.request_hash, t.response, t.error, t.scheduled_time, t.lease, t.reply_to
