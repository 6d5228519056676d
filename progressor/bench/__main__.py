"""`python -m progressor.bench`: measure the case that stdin names, and write its figures to stdout."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from progressor.bench.cases import WORKLOADS, Workload
from progressor.bench.children import read_line, write_line
from progressor.deployment.loops import serving


def main(workloads: Mapping[str, Workload] = WORKLOADS) -> None:
    """Measure the case that stdin names, and answer with its figures."""
    logging.basicConfig(level=logging.ERROR)
    case = read_line()
    with serving() as runner:
        write_line(runner.run(workloads[case["workload"]](case["dsn"], **case["params"])))


if __name__ == "__main__":
    main()
