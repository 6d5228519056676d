-- Every hot statement is a chain of key look-ups. A generic plan of index scans and nested loops is right
-- at any size of the tables, also in the minutes before the first ANALYZE of a table that grows from empty. A
-- look of a millisecond must not start parallel workers, which takes ten.
SELECT
    set_config('plan_cache_mode', 'force_generic_plan', %(is_local)s::boolean),
    set_config('enable_seqscan', 'off', %(is_local)s::boolean),
    set_config('enable_hashjoin', 'off', %(is_local)s::boolean),
    set_config('enable_mergejoin', 'off', %(is_local)s::boolean),
    set_config('enable_bitmapscan', 'off', %(is_local)s::boolean),
    set_config('enable_material', 'off', %(is_local)s::boolean),
    set_config('max_parallel_workers_per_gather', '0', %(is_local)s::boolean),
    set_config('jit', 'off', %(is_local)s::boolean)
