"""`python -m benchmarks.linearizability --seconds 300 --seed 7 --json report.json`.

Exit status 0: everything holds. With `--planted`, 0 says that the wrong answers were found.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from benchmarks.linearizability.nemesis import FAULTS
from benchmarks.linearizability.run import Options, carry_out


def main() -> int:
    """Run it, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linearizability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between faults, on average")
    parser.add_argument(
        "--demand", type=int, default=1000, help="known answers of each kind that there must be"
    )
    parser.add_argument(
        "--fault", action="append", choices=FAULTS, help="only this one, and others that are named"
    )
    parser.add_argument("--planted", action="store_true", help="with wrong answers, planted in the facade")
    parser.add_argument("--json", type=Path, help="write the report here")
    given = parser.parse_args()
    # Outages are what this is about.
    logging.getLogger("progressor").setLevel(logging.ERROR)
    report = carry_out(
        Options(
            seconds=given.seconds,
            seed=given.seed,
            pause=given.pause,
            kinds=tuple(given.fault or FAULTS),
            demand=given.demand,
            planted=given.planted,
        )
    )
    text = json.dumps(report.as_dict(), indent=1, default=str)
    if given.json:
        given.json.write_text(text)
    print(text)
    return 0 if report.holds != given.planted else 1


if __name__ == "__main__":
    sys.exit(main())
