"""mypy and pyright know the arguments, answers and states of requests by function."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACCEPTED, REFUSED = Path("tests/typing/accepted.py"), Path("tests/typing/refused.py")


def _mypy() -> dict[str, set[int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--show-error-codes", ACCEPTED, REFUSED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = re.findall(r"^(.+?):(\d+): error: ", done.stdout, re.MULTILINE)
    assert lines, done.stdout + done.stderr
    return _by_file((name, int(line)) for name, line in lines)


def _pyright() -> dict[str, set[int]]:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error"]
    # Without that it looks at a .venv beside the project, whichever Python runs the tests.
    command += ["--pythonpath", sys.executable, str(ACCEPTED), str(REFUSED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return _by_file((each["file"], each["range"]["start"]["line"] + 1) for each in found)


def _by_file(found: object) -> dict[str, set[int]]:
    lines: dict[str, set[int]] = {}
    for name, line in found:
        lines.setdefault(Path(name).name, set()).add(line)
    return lines


@pytest.mark.parametrize("check", [_mypy, _pyright], ids=["mypy", "pyright"])
def test_a_checker_refuses_what_is_marked_and_nothing_else(check) -> None:
    """Each `refused` is an error, and no other line of the two files is."""
    wanted = {
        number
        for number, line in enumerate((ROOT / REFUSED).read_text().splitlines(), start=1)
        if line.endswith("# refused")
    }
    assert check() == {REFUSED.name: wanted}
