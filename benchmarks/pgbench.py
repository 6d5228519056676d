"""`pgbench -N`: what PostgreSQL's own benchmark gets of one durable transaction after another.

`-N` is its simple update: one row updated, one read, one inserted. Eight clients, scale 10.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from progressor.embedded.binaries import find_installation
from progressor.errors import ProgressorError

_SCALE = 10
_TPS = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)
_LATENCY = re.compile(r"^latency average = ([0-9.]+) ms", re.MULTILINE)


def program() -> Path | None:
    """pgbench of the PATH, or the one beside the embedded server's programs; None: there is none."""
    try:
        beside = find_installation().program("pgbench")
    except ProgressorError:
        beside = None
    if beside is not None and beside.exists():
        return beside
    found = shutil.which("pgbench")
    return Path(found) if found else None


def _run(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pgbench: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.stdout


def main() -> None:
    """One case, one answer."""
    told = json.loads(sys.stdin.readline())
    found = program()
    if found is None:
        raise SystemExit("pgbench is not installed")
    clients, seconds = told["params"]["clients"], max(1, round(told["params"]["seconds"]))
    _run(str(found), "-i", "-q", "-s", str(_SCALE), told["dsn"])
    said = _run(str(found), "-N", "-n", "-c", str(clients), "-T", str(seconds), told["dsn"])
    tps, average = _TPS.search(said), _LATENCY.search(said)
    if tps is None or average is None:
        raise SystemExit("pgbench said no rate")
    rate = float(tps[1])
    print(json.dumps({"rate": rate, "us": 1e6 / rate, "average_ms": float(average[1])}))


if __name__ == "__main__":
    main()
