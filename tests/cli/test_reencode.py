"""progressor reencode: stored values, written anew with the active key of an app's keyrings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor import AuditPage, Client, Engine, Namespace, Process
from progressor.codecs import Keyring, ValuePlace
from tests.support import check_invariants

Run = Callable[..., Any]

K1, K2 = bytes(range(32)), bytes(range(32, 64))
APP = f"""
from progressor import Namespace
from progressor.codecs import Keyring

keyring = Keyring("k2", {{"k1": {K1!r}, "k2": {K2!r}}})
vault = Namespace("vault", codec=keyring)
office = Namespace("office", codec=keyring)
open_ = Namespace("open")
plain = [open_]
namespaces = [vault, office, open_]
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an app whose keyring has rotated."""
    (tmp_path / "rotated_app.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    yield "rotated_app"
    sys.modules.pop("rotated_app", None)


@pytest.fixture
def reencode(dsn: str, progressor: Run, app: str) -> Run:
    """Run the command for the app."""
    return lambda *args, of="namespaces": progressor(
        "reencode", f"{app}:{of}", "--database-url", dsn, *args
    )


@pytest.fixture
def stored(dsn: str) -> Iterator[int]:
    """How many values two namespaces have, of the old key."""
    old = Keyring("k1", {"k1": K1})
    namespaces = [Namespace("vault", codec=old), Namespace("office", codec=old)]
    for namespace in namespaces:

        @namespace.init
        async def begin(process: Process, args: int) -> int:
            process.state = args
            process.emit("begun", by=args)
            return args

    async def start() -> None:
        async with Engine(dsn, namespaces) as engine:
            for number in range(3):
                await engine.client.start("vault", f"p{number}", number)
            await engine.client.start("office", "o", 7)

    asyncio.run(start())
    yield 16
    check_invariants(dsn)


def test_it_writes_what_is_of_another_key(reencode: Run, stored: int, dsn: str) -> None:
    """First a look, then one namespace, then all; at the end nothing is found of the old key."""
    look = json.loads(reencode("--dry-run", "--json").out)
    (share,) = look["found"]
    assert (share["key"], share["values"]) == ("k1", stored)
    done = json.loads(reencode("--namespace", "office", "--json", "--reason", "k1 leaked").out)
    assert (done["written"]["values"], done["whole"], done["left"]) == (4, True, 0)
    done = reencode("--rate", "100000")
    assert done.status == 0
    assert [line.split()[:4] for line in done.out.splitlines()] == [
        ["found", "k1", "12", "values"],
        ["found", "k2", "4", "values"],
        ["written", "12", "values", done.out.split()[-2]],
    ]
    again = json.loads(reencode("--json").out)
    assert [each["key"] for each in again["found"]] == ["k2"]
    assert again["written"] == {"values": 0, "bytes": 0}

    async def read() -> tuple[list[Any], AuditPage]:
        async with Client(dsn, codec=Keyring("k2", {"k2": K2})) as client:
            states = [(await client.get("vault", f"p{number}")).state for number in range(3)]
            return states, await client.audit(verb="reencode")

    states, noted = asyncio.run(read())
    assert states == [0, 1, 2]
    # Once for each run that wrote something of the namespace.
    assert [(each.namespace, each.detail, each.reason, each.way) for each in noted.entries] == [
        ("vault", "k2", None, "cli"),
        ("office", "k2", "k1 leaked", "cli"),
    ]


def test_what_cannot_be_read_ends_it_with_1(reencode: Run, stored: int, dsn: str) -> None:
    """The others are written; the key that is missing is named, no value and no key is shown."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE progressor.processes SET aux_state = %s WHERE process_id = 'p0'",
            [Keyring("k9", {"k9": K1}).seal(b"0", ValuePlace("vault", "p0", "state"))],
        )
    done = reencode("--json")
    assert done.status == 1
    document = json.loads(done.out)
    assert [(each["key"], each["values"]) for each in document["unreadable"]] == [("k9", 1)]
    assert document["written"]["values"] == stored - 1
    assert not document["whole"]
    shown = reencode()
    assert shown.status == 1
    assert "not readable: k9" in shown.out
    assert K1.hex() not in shown.out + shown.err


def test_it_works_behind_a_pooler_that_lets_no_notifications_through(
    reencode: Run, stored: int, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the way past it is set for all commands."""
    monkeypatch.setenv("PROGRESSOR_LISTEN_DATABASE_URL", dsn)
    done = reencode("--dry-run")
    assert (done.status, "listen" in done.err) == (0, False)


def test_a_namespace_that_the_app_lacks_is_named(reencode: Run, stored: int, dsn: str) -> None:
    """Its values may be of the old key still; with --namespace nobody asked for it."""

    async def start() -> None:
        async with Engine(dsn, [Namespace("attic")]):
            pass

    asyncio.run(start())
    assert "does not have them: attic" in " ".join(reencode("--dry-run").err.split())
    assert json.loads(reencode("--dry-run", "--json").out)["not_looked_at"] == ["attic"]
    assert "attic" not in reencode("--dry-run", "--namespace", "vault").err


def test_it_needs_a_keyring(reencode: Run) -> None:
    """An app without one, and a namespace that it lacks, are told what is missing."""
    done = reencode(of="plain")
    assert (done.status, "active key" in done.err) == (2, True)
    done = reencode("--namespace", "nobody")
    assert (done.status, "not nobody" in done.err) == (2, True)


def test_ctrl_c_leaves_what_is_written(app: str, stored: int, dsn: str, tmp_path: Path) -> None:
    """It says how to go on, ends as commands do, and the same command does the rest."""
    command = [sys.executable, "-m", "progressor", "reencode", f"{app}:namespaces", "--database-url", dsn]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as connection:
        # States are written before events, which nobody can write now.
        other.execute("LOCK TABLE progressor.events IN SHARE MODE")
        held_up = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        waiting = "SELECT FROM pg_locks WHERE relation = 'progressor.events'::regclass AND NOT granted"
        while not connection.execute(waiting).fetchall():
            assert held_up.poll() is None
        held_up.send_signal(signal.SIGINT)
        _, err = held_up.communicate(timeout=60)
    assert held_up.returncode == 130
    assert "goes on with what is left" in err
    assert "Traceback" not in err
    done = subprocess.run(
        [*command, "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    document = json.loads(done.stdout)
    assert document["whole"]
    assert 0 < document["written"]["values"] < stored
