-- An operator pauses a namespace, or lets it go on. Whatever puts a task into `running` asks for it: what a
-- statement that began before the commit takes, still runs.
UPDATE progressor.namespaces
SET paused = %(paused)s::boolean
WHERE name = %(name)s::text
RETURNING name
