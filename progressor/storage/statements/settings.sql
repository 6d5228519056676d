-- What the engine's statements rely on, for the session or, where a pooler keeps none, for the transaction.
-- Every hot statement is a chain of key look-ups. A generic plan of index scans and nested loops is right
-- at any size of the tables, also in the minutes before the first ANALYZE of a table that grows from empty.
-- A process that freezes or vanishes between two round trips of a transaction must not keep its locks.
SELECT
    set_config('plan_cache_mode', 'force_generic_plan', %(is_local)s::boolean),
    set_config('enable_seqscan', 'off', %(is_local)s::boolean),
    set_config('enable_hashjoin', 'off', %(is_local)s::boolean),
    set_config('enable_mergejoin', 'off', %(is_local)s::boolean),
    set_config('enable_bitmapscan', 'off', %(is_local)s::boolean),
    set_config('enable_material', 'off', %(is_local)s::boolean),
    set_config('jit', 'off', %(is_local)s::boolean),
    set_config('idle_in_transaction_session_timeout', '15s', %(is_local)s::boolean),
    set_config('TimeZone', 'UTC', %(is_local)s::boolean)
