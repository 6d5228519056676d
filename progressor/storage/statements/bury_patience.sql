-- Behind the lock of a process nobody of ours holds its other rows: who does may hold them for long, and all
-- other zombies would wait with us.
SELECT set_config('lock_timeout', '500ms', TRUE)
