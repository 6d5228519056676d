"""A data directory that must be free of servers at the end, and other processes that use it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from progressor.embedded import lifetime
from tests import postgres

ROOT = Path(__file__).parents[2]
PACKAGES = os.pathsep.join([str(ROOT), *(p for p in sys.path if p.endswith("-packages"))])
ENVIRONMENT = {"PATH": os.defpath, "PYTHONPATH": PACKAGES, postgres.VARIABLE: str(postgres.BIN_DIR or "")}
DEADLINE_SECONDS = 120.0


class Child:
    """Another OS process that starts or attaches, and leaves when told."""

    def __init__(
        self,
        home: Path,
        *,
        python: str = sys.executable,
        user: int | None = None,
    ) -> None:
        self._popen = subprocess.Popen(
            [python, str(Path(__file__).with_name("child.py")), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            env=ENVIRONMENT,
        )
        self.pid = self._popen.pid

    def dsn(self) -> str:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline().strip()
        assert line, self._popen.communicate()[1]
        return line

    def leave(self) -> None:
        _, errors = self._popen.communicate(timeout=DEADLINE_SECONDS)
        assert self._popen.returncode == 0, errors

    def kill(self) -> None:
        self._popen.kill()
        self._popen.communicate()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    return wait_until


def wait_until(condition: Callable[[], bool], text: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {text}"
        time.sleep(0.01)


def nothing_lives(home: Path) -> bool:
    """Neither server nor watcher."""
    for folder in (path.parent for path in home.glob("pg*/watcher.lock")):
        lock = lifetime.try_to_take(folder / lifetime.WATCHER_LOCK, fcntl.LOCK_EX)
        if lock is None or lifetime.is_alive(folder):
            return False
        os.close(lock)
    return True


@pytest.fixture
def ground() -> Iterator[Path]:
    """A directory that every user can enter: pytest's tmp_path is closed to root's server."""
    path = Path(tempfile.mkdtemp(prefix="prg-embedded-", dir=postgres.PLACE))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(ground: Path) -> Iterator[Path]:
    """A data directory that does not exist yet; at the end nothing lives in it."""
    path = ground / "postgres"
    yield path
    wait_until(lambda: nothing_lives(path), f"the end of all servers in {path}")


@pytest.fixture
def spawn(home: Path) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def begin(**options: object) -> Child:
        children.append(Child(home, **options))  # type: ignore[arg-type]
        return children[-1]

    yield begin
    for child in children:
        child.kill()


@pytest.fixture
def plain_user() -> dict[str, object]:
    """How to run a Child as a user without rights: `nobody` for root, else who runs the tests."""
    if os.geteuid() != 0:
        return {}
    system = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin") or sys.executable
    for python in (sys.executable, system):
        try:
            subprocess.run(
                [python, "-c", "from tests import postgres; postgres.installation()"],
                user=65534,
                group=65534,
                extra_groups=[],
                env=ENVIRONMENT,
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return {"python": python, "user": 65534}
    pytest.skip("user nobody can reach no Python with these packages, or no PostgreSQL")
