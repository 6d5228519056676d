"""Whatever is killed, the next start works, committed rows are there, and nothing runs for ever."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor.embedded import lifetime
from tests import postgres

Spawn = Callable[..., Any]
Eventually = Callable[[Callable[[], bool], str], None]


def folder_of(home: Path) -> Path:
    return next(home.glob("pg*"))


def watcher_pid(home: Path) -> int:
    script = str(lifetime.__file__)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if script in words and str(folder_of(home)) in words:
            return int(path.parent.name)
    raise AssertionError("no watcher")


def commit(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")


def assert_kept(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_a_killed_owner_leaves_no_server(home: Path, spawn: Spawn, eventually: Eventually) -> None:
    """The watcher ends the server, and the next start finds the rows."""
    child = spawn()
    commit(child.dsn())
    child.kill()
    eventually(lambda: not lifetime.is_alive(folder_of(home)), "the watcher ends the server")
    with postgres.embedded(home) as dsn:
        assert_kept(dsn)


def test_a_start_right_after_a_kill(home: Path, spawn: Spawn) -> None:
    """The new user attaches, or waits until the watcher has ended the old server."""
    child = spawn()
    commit(child.dsn())
    child.kill()
    with postgres.embedded(home) as dsn:
        assert_kept(dsn)


def test_a_killed_owner_does_not_disturb_the_others(home: Path, spawn: Spawn) -> None:
    """Only the last user's end is the server's end."""
    child = spawn()
    child.dsn()
    with postgres.embedded(home) as dsn:
        pid = lifetime.server_pid(folder_of(home))
        child.kill()
        commit(dsn)
        assert lifetime.server_pid(folder_of(home)) == pid


def test_owner_and_watcher_killed(home: Path, spawn: Spawn) -> None:
    """The orphaned server is attached to, and has a watcher again."""
    child = spawn()
    commit(child.dsn())
    old = watcher_pid(home)
    os.kill(old, signal.SIGKILL)
    child.kill()
    pid = lifetime.server_pid(folder_of(home))
    assert pid is not None
    with postgres.embedded(home) as dsn:
        assert_kept(dsn)
        assert lifetime.server_pid(folder_of(home)) == pid
        assert watcher_pid(home) != old


def test_a_killed_server_comes_back_with_start(home: Path) -> None:
    """PostgreSQL recovers from its log; the same object attaches again."""
    embedded = postgres.embedded(home)
    commit(embedded.start())
    pid = lifetime.server_pid(folder_of(home))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert_kept(embedded.start())
    assert lifetime.server_pid(folder_of(home)) != pid
    embedded.stop()


def test_everything_killed(home: Path, spawn: Spawn) -> None:
    """As after a power cut: no user, no watcher, no server, but the files."""
    child = spawn()
    commit(child.dsn())
    pid = lifetime.server_pid(folder_of(home))
    assert pid is not None
    for victim in (watcher_pid(home), child.pid, pid):
        os.kill(victim, signal.SIGKILL)
    with postgres.embedded(home) as dsn:
        assert_kept(dsn)


def test_the_pid_in_an_old_file_may_be_another_programs(home: Path) -> None:
    """After a restart of a container pids repeat; ours must neither be ended nor stop us."""
    embedded = postgres.embedded(home)
    commit(embedded.start())
    embedded.stop()
    data = folder_of(home) / "data"
    owner = data.stat().st_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=owner) as innocent:
        pid_file = data / "postmaster.pid"
        pid_file.write_text(f"{innocent.pid}\n{data}\n1\n5432\n\n\n\nready\n")
        if owner is not None:
            os.chown(pid_file, owner, -1)
        with embedded as dsn:
            assert_kept(dsn)
        assert innocent.poll() is None
        innocent.kill()


def test_a_killed_initdb_leaves_nothing_in_the_way(home: Path) -> None:
    """Half a database stands beside its final place, and is removed by the next start."""
    embedded = postgres.embedded(home)
    embedded.start()
    embedded.stop()
    folder = folder_of(home)
    (folder / "data").rename(folder / "initdb-left")
    (folder / "initdb-left" / "global" / "pg_control").unlink()
    commit(embedded.start())
    assert not (folder / "initdb-left").exists()
    embedded.stop()


@pytest.mark.parametrize("seed", range(2))
def test_kills_at_any_moment(home: Path, spawn: Spawn, eventually: Eventually, seed: int) -> None:
    """Three processes start at once and die soon: nothing stays, and the next start works."""
    dice = random.Random(seed)
    children = [spawn() for _ in range(3)]
    eventually(home.exists, "somebody begins")
    for child in children:
        # The moment of the kill is the input of this test, not a synchronisation.
        with pytest.raises(subprocess.TimeoutExpired):
            child._popen.wait(timeout=dice.uniform(0.05, 0.4))
        child.kill()
    eventually(_free(home), "the watcher ends what was begun")
    with postgres.embedded(home) as dsn:
        commit(dsn)


def _free(home: Path) -> Callable[[], bool]:
    def free() -> bool:
        for folder in home.glob("pg*"):
            users = lifetime.try_to_take(folder / lifetime.USERS_LOCK, fcntl.LOCK_EX)
            if users is None:
                return False
            lifetime.let_go(users)
            if lifetime.is_alive(folder):
                return False
        return True

    return free
