-- The first statement of every claim: one at a time under one lease. A claim that is repeated after a lost
-- connection waits here for its own first try.
SELECT pg_advisory_xact_lock(%(lease)s::bigint)::text AS locked
