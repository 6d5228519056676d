"""`python -m benchmarks.chaos --seconds 300 --seed 7 --json chaos.json --report chaos.md`.

Exit status 0: everything holds. With `--defect`, 0 says that the harness found the defect.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from benchmarks.chaos.defects import DEFECTS
from benchmarks.chaos.faults import WEIGHTS
from benchmarks.chaos.losses import LOSSES
from benchmarks.chaos.run import Options, carry_out

# A loss takes a good part of the minute.
_QUICK_KINDS = tuple(kind for kind in WEIGHTS if kind not in LOSSES)
_QUICK_SECONDS, _QUICK_PAUSE, _QUICK_SETTLE = 20.0, 0.7, 90.0


def main() -> int:
    """Run it, and write the reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between faults, on average")
    parser.add_argument(
        "--settle", type=float, default=60, help="seconds in which all must come to its end"
    )
    parser.add_argument("--quick", action="store_true", help="a minute in all")
    parser.add_argument(
        "--fault",
        action="append",
        choices=WEIGHTS,
        help="only this one and others that are named, each once at least",
    )
    parser.add_argument("--defect", choices=DEFECTS, help="run a copy that is broken on purpose")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--report", type=Path, help="write the report here, as Markdown")
    given = parser.parse_args()
    # Outages are what this is about: the report tells of them, not the log.
    logging.getLogger("progressor").setLevel(logging.ERROR)
    options = Options(
        seconds=_QUICK_SECONDS if given.quick else given.seconds,
        seed=given.seed,
        pause=_QUICK_PAUSE if given.quick else given.pause,
        kinds=tuple(given.fault or (_QUICK_KINDS if given.quick else WEIGHTS)),
        least=len(given.fault or ()),
        settle=_QUICK_SETTLE if given.quick else given.settle,
        defect=given.defect,
    )
    report = carry_out(options)
    if given.json:
        given.json.write_text(json.dumps(report.as_dict(), indent=1, default=str))
    if given.report:
        given.report.write_text(report.markdown())
    print(report.markdown())
    return 0 if report.holds != bool(options.defect) else 1


if __name__ == "__main__":
    sys.exit(main())
