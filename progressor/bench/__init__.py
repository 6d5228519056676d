"""The engine's own benchmark: workloads that measure it on any PostgreSQL.

`progressor bench` runs them on a user's server, `benchmarks/` beside other systems. Rule: every figure is
taken with durable commits, by the public API, from outside the handlers' hot path; and every workload
proves afterwards that each step it counted stands in the tables.
"""
