SELECT %(namespace)s::text AS namespace, i.*, timer.*, named.*
FROM started AS i
-- include timers
ORDER BY i.scheduled_time, i.task_id
