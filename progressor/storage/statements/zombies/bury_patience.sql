-- A short lock_timeout. Behind the lock of a process no session of the engine holds its other rows. Any
-- other session may hold them for long, and all other zombies would wait too.
SELECT set_config('lock_timeout', '500ms', TRUE)
