"""The billing service of `examples/` once more, with DBOS: what each has, and in how many lines."""
