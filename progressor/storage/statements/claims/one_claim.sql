-- The first statement of every claim: one claim at a time under one lease. A claim that is repeated after a
-- lost connection waits here for its own first try, if that has reached the server. A first try that a
-- pooler holds back until after the repetition is not seen; a collector takes the tasks that it then
-- claims.
SELECT pg_advisory_xact_lock(%(lease)s::bigint)::text AS locked
