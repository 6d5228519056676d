-- An operator pauses a namespace, or lets it go on. The last reason counts. Whatever puts a task into `running` asks for it: what a
-- statement that began before the commit takes, still runs.
UPDATE progressor.namespaces
SET paused = %(paused)s::boolean, pause_reason = %(reason)s::text
WHERE name = %(name)s::text
RETURNING name
