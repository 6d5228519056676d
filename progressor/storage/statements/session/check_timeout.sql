-- Before deferred constraints are checked: the time-out is that of the step again, whatever its handler has
-- set. A handler may have made a type or a function of its own that is found first.
SELECT pg_catalog.set_config('statement_timeout', %(statement_timeout)s::pg_catalog.text, TRUE)
