-- Mark a transaction that a handler gets, and bound it, so that the server ends one whose worker is frozen.
-- The mark and the bounds end with the transaction: a handler that ends it leaves none.
SELECT
    set_config('progressor.step', %(mark)s::text, TRUE),
    set_config('statement_timeout', %(statement_timeout)s::text, TRUE),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s::text, TRUE),
    CASE -- From PostgreSQL 17 on. A clock that runs, as that of a role's own, is only stopped by 0.
        WHEN current_setting('transaction_timeout', TRUE) IS NOT NULL
            THEN set_config('transaction_timeout', '0', TRUE)
                || set_config('transaction_timeout', %(transaction_timeout)s::text, TRUE)
    END
