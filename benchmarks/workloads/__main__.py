"""`python -m benchmarks.workloads`: measure the case that stdin names, and write its figures to stdout."""

from benchmarks.workloads.cases import WORKLOADS
from progressor.bench.__main__ import main

if __name__ == "__main__":
    main(WORKLOADS)
