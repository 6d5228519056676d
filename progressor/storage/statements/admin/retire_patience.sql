-- A short lock_timeout: retiring a namespace holds up all writes to processes.
SELECT set_config('lock_timeout', '2s', TRUE)
