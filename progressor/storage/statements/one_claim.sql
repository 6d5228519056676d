-- The first statement of every claim: one at a time under one lease. A claim that is repeated after a lost
-- connection waits here for its own first try, once that has reached the server: one that a pooler holds back
-- until after its repetition is not seen, and what it then takes is left to a collector.
SELECT pg_advisory_xact_lock(%(lease)s::bigint)::text AS locked
