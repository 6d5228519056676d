-- First, where others must not wait for this transaction: it waits so long at most for each lock.
SELECT set_config('lock_timeout', %(lock_timeout)s::text, TRUE) AS lock_timeout
