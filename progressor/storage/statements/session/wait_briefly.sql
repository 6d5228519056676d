-- First, where others must not wait for this transaction: it waits so long at most for each lock. One try of
-- sixteen waits for a second: else where each commit takes longer than the others wait, what is
-- tried again and again might never have its turn.
SELECT set_config(
    'lock_timeout',
    CASE WHEN random() < 0.0625 THEN '1s' ELSE %(lock_timeout)s::text END,
    TRUE
) AS lock_timeout
