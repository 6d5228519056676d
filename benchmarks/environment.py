"""Which tree is measured, and the environment of its peers: in the cache folder, made once and kept.

Rule: nothing of the peers is ever installed beside the engine. `PROGRESSOR_BENCH_PYTHON` names another one.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.contestants import PEERS

_ROOT = Path(__file__).resolve().parents[1]
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_VARIABLE = "PROGRESSOR_BENCH_PYTHON"


def python() -> Path:
    """The peers' Python; installed first if need be, which takes a minute."""
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    wanted = hashlib.sha256(_REQUIREMENTS.read_bytes() + sys.version.encode() + str(_ROOT).encode())
    folder = cache / "progressor-benchmarks" / wanted.hexdigest()[:12]
    found, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip: list[str | Path] = [found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", _REQUIREMENTS, "--editable", _ROOT], check=True)
        complete.touch()
    return found


def versions(interpreter: Path) -> dict[str, str]:
    """Which releases of the peers are there to be measured: not each one supports this Python."""
    script = (
        "from importlib.metadata import distributions\n"
        "for each in distributions():\n"
        "    print(each.name.removesuffix('-sdk'), each.version)"
    )
    done = subprocess.run([interpreter, "-c", script], capture_output=True, text=True, check=True)
    found = dict(line.split() for line in done.stdout.splitlines())
    return {name: found[name] for name in PEERS if name in found}


def tree() -> str | None:
    """The date and the commit of this checkout; None outside of one."""
    command = ("git", "log", "-1", "--format=%cs (%h)")
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
