-- Retiring a namespace holds up whoever writes to processes: not for long.
SELECT set_config('lock_timeout', '2s', TRUE)
