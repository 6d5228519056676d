"""Benchmarks of the engine: the workloads of `progressor bench`.

`progressor bench` runs them on a user's server, `benchmarks/` beside other systems. Rule: every figure is
taken with durable commits, by the public API, from outside the handlers' hot path; and every workload
proves afterwards that each step it counted stands in the tables.
"""
