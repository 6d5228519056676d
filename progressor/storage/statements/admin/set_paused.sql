-- Pause a namespace, or let it go on. The last reason counts. Every statement that puts a task into
-- `running` checks this; one that began before the commit may still take tasks, and these run.
UPDATE progressor.namespaces
SET paused = %(paused)s::boolean, pause_reason = %(reason)s::text
WHERE name = %(name)s::text
RETURNING name
