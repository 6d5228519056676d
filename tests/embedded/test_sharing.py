"""Several OS processes share one server; the last one to leave ends it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from progressor.embedded import lifetime
from tests import postgres

Spawn = Callable[..., Any]


def server(home: Path) -> int | None:
    return lifetime.server_pid(next(home.glob("pg*")))


def test_a_second_process_attaches(home: Path, spawn: Spawn) -> None:
    """Both see the same server and the same rows."""
    with postgres.embedded(home) as dsn:
        pid = server(home)
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE seen AS SELECT 1 AS x")
        child = spawn()
        assert child.dsn() == dsn
        assert server(home) == pid
        child.leave()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT x FROM seen").fetchone() == (1,)


def test_the_starter_may_leave_first(home: Path, spawn: Spawn) -> None:
    """The server belongs to all its users, not to the one who started it."""
    embedded = postgres.embedded(home)
    dsn = embedded.start()
    child = spawn()
    child.dsn()
    pid = server(home)
    embedded.stop()
    with psycopg.connect(dsn):
        assert server(home) == pid
    child.leave()
    assert not lifetime.is_alive(next(home.glob("pg*")))


def test_two_users_in_one_process_count_twice(home: Path) -> None:
    """A test suite and an application in one process do not end each other's server."""
    with postgres.embedded(home) as dsn:
        with postgres.embedded(home):
            pass
        with psycopg.connect(dsn):
            pass


def test_four_processes_start_at_once(home: Path, spawn: Spawn) -> None:
    """One makes the database and starts the server, three attach; the last one ends it."""
    children = [spawn() for _ in range(4)]
    dsns = {child.dsn() for child in children}
    assert len(dsns) == 1
    with psycopg.connect(dsns.pop()) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("progressor",)
    for child in children:
        child.leave()
    assert not lifetime.is_alive(next(home.glob("pg*")))


def test_a_plain_user_has_a_server(home: Path, spawn: Spawn, plain_user: dict[str, Any]) -> None:
    """Nothing needs root: the server runs as its user."""
    if user := plain_user.get("user"):
        home.mkdir()
        os.chown(home, user, user)
    child = spawn(**plain_user)
    with psycopg.connect(child.dsn()) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
    folder = next(home.glob("pg*"))
    assert folder.stat().st_uid == (folder / "data").stat().st_uid
    child.leave()
    assert not lifetime.is_alive(folder)
