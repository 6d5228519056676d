-- The settings of a session or, where a pooler lends sessions out, of a transaction: later statements rely
-- on them, and a role or a database may have others. Under repeatable read, a transaction that waited for a
-- lock would decide by what was true before it waited. No deadline ends an idle session, which is kept on
-- purpose.
SELECT
    set_config('default_transaction_isolation', 'read committed', %(is_local)s::boolean),
    set_config('default_transaction_read_only', 'off', %(is_local)s::boolean),
    set_config('default_transaction_deferrable', 'off', %(is_local)s::boolean),
    set_config('statement_timeout', %(statement_timeout)s::text, %(is_local)s::boolean),
    set_config('lock_timeout', %(lock_timeout)s::text, %(is_local)s::boolean),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s::text, %(is_local)s::boolean),
    set_config('idle_session_timeout', '0', %(is_local)s::boolean),
    CASE -- From PostgreSQL 17 on.
        WHEN current_setting('transaction_timeout', TRUE) IS NOT NULL
            THEN set_config('transaction_timeout', '0', %(is_local)s::boolean)
    END,
    set_config('array_nulls', 'on', %(is_local)s::boolean),
    set_config('gin_fuzzy_search_limit', '0', %(is_local)s::boolean),
    -- Else a backslash in a text of a statement would be no character of it.
    set_config('standard_conforming_strings', 'on', %(is_local)s::boolean),
    set_config('quote_all_identifiers', 'off', %(is_local)s::boolean),
    set_config('DateStyle', 'ISO', %(is_local)s::boolean),
    set_config('IntervalStyle', 'postgres', %(is_local)s::boolean),
    set_config('TimeZone', 'UTC', %(is_local)s::boolean)
