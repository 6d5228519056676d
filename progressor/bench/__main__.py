"""`python -m progressor.bench`: measure the case that stdin names, and write its figures to stdout."""

from __future__ import annotations

import logging

from progressor.bench.cases import WORKLOADS
from progressor.bench.children import heard, say
from progressor.deployment.loops import serving


def main() -> None:
    """Measure the case that stdin names, and answer with its figures."""
    logging.basicConfig(level=logging.ERROR)
    told = heard()
    with serving() as runner:
        say(runner.run(WORKLOADS[told["workload"]](told["dsn"], **told["params"])))


if __name__ == "__main__":
    main()
