"""Benchmarks of the engine: the workloads of `progressor bench`.

`progressor bench` runs them on a user's server; `benchmarks/`, in the repository alone, runs them with more
workloads and beside other systems. Rule: every figure is measured with durable commits, through the public
API, outside the handlers' hot path; and every workload proves afterwards that each step it counted is in
the tables.
"""
