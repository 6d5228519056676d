"""PROGRESSOR_APP: commands read and write the values of encrypted namespaces, with the keys of an app."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from progressor import Engine
from progressor.cli.apps import load
from tests.cli.conftest import Ended, Running
from tests.support import check_invariants

Command = Callable[..., Awaitable[Ended]]

APP = """
from pydantic import BaseModel

from progressor import Namespace, Process
from progressor.codecs import Keyring


class Note(BaseModel):
    words: list[str]


notes = Namespace("office.note", state=Note, codec=Keyring("k1", {"k1": bytes(range(32))}, plain="refuse"))


@notes.init
async def begin(process: Process[Note], word: str) -> None:
    process.state = Note(words=[word])
    process.emit("begun", word=word)


@notes.call
async def add(process: Process[Note], word: str) -> Note:
    if word == "bad":
        raise ValueError("no such word")
    process.state.words.append(word)
    return process.state


@notes.repair(dry_run=True)
async def mend(process: Process[Note], word: str) -> int:
    process.state = Note(words=[word])
    return 1
"""
_NOTE = "PROGRESSOR_APP names the app with their keys"
_VALUES = """
SELECT args FROM tasks UNION ALL SELECT response FROM tasks UNION ALL SELECT aux_state FROM processes
UNION ALL SELECT payload FROM events
"""


@pytest.fixture
async def served(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A worker of an app that encrypts, and refuses what is plain."""
    (tmp_path / "office_app.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    async with Engine(dsn, load("office_app")):
        yield
    sys.modules.pop("office_app", None)
    check_invariants(dsn)


@pytest.fixture
def command(dsn: str, progressor: Callable[..., Ended], served: None) -> Command:
    """Runs a command with the keys of the app, of another, or of none, beside the worker."""

    async def run(*args: str, app: str = "office_app") -> Ended:
        return await asyncio.to_thread(progressor, *args, PROGRESSOR_DATABASE_URL=dsn, PROGRESSOR_APP=app)

    return run


async def test_values_are_written_and_read_with_the_keys_of_the_app(command: Command, dsn: str) -> None:
    """By each command that has any, and none is stored in plain."""
    name = ("office.note", "1")
    assert (await command("start", *name, '"tea"')).status == 0
    assert (await command("call", *name, "add", '"milk"')).out == '{"words": ["tea", "milk"]}\n'
    assert (await command("call", *name, "add", '"bad"')).status == 1
    assert '"words": ["tea"]' in (await command("repair", *name, '"tea"', "--dry-run", "--json")).out
    assert '-    "milk"' in (await command("repair", *name, '"tea"', "--dry-run")).out
    assert (await command("repair", *name, '"rum"')).out == "1\n"
    shown = (await command("get", *name, "--json")).json
    assert (shown["state"], shown["history"][0]["payload"]) == ({"words": ["rum"]}, {"word": "tea"})
    # Dry runs are tasks too.
    args = [entry["args"] for entry in (await command("trace", *name, "--json")).json]
    assert args == ["tea", "milk", "bad", "tea", "tea", "rum"]
    assert (await command("put", "office.note", "2", '{"words": []}')).status == 0
    assert (await command("call", "office.note", "2", "add", '"salt"')).out == '{"words": ["salt"]}\n'
    with psycopg.connect(dsn) as connection:
        connection.execute("SET search_path TO progressor")
        stored = [bytes(value) for (value,) in connection.execute(_VALUES) if value is not None]
    assert len(stored) > 10
    assert all(each.startswith(b"\x00prg1") for each in stored)


async def test_what_has_no_values_needs_no_keys(command: Command, tmp_path: Path) -> None:
    """An app that cannot be imported keeps nobody from a pause; what it prints is not the answer."""
    (tmp_path / "silent_app.py").write_text("raise RuntimeError('no keys here')")
    (tmp_path / "talking_app.py").write_text(f"print('hello')\n{APP}")
    assert (await command("start", "office.note", "1", '"tea"')).status == 0
    for args in (("status",), ("pause", "office.note"), ("resume", "office.note"), ("workers",)):
        assert (await command(*args, app="silent_app")).status == 0
    assert (await command("get", "office.note", "1", app="silent_app")).status == 1
    shown = await command("get", "office.note", "1", "--json", app="talking_app")
    assert (shown.json["state"], "hello" in shown.err) == ({"words": ["tea"]}, True)


async def test_a_watch_shows_the_state_as_it_is_stored(
    command: Command, spawn: Callable[..., Running], dsn: str, tmp_path: Path
) -> None:
    """Though the app would read it as another type."""
    name = ("office.note", "1")
    assert (await command("start", *name, '"tea"')).status == 0
    (tmp_path / "later_app.py").write_text(APP.replace("words: list[str]", "letters: int"))
    env = {"PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_APP": "later_app"}
    watching = spawn("watch", *name, "--state", "--json", cwd=tmp_path, **env)
    shown = json.loads(await asyncio.to_thread(watching.wait_for, '"state"'))
    assert shown["state"] == {"words": ["tea"]}
    assert (await command("remove", *name, "--yes")).status == 0
    assert await asyncio.to_thread(watching.end) == 0


async def test_without_an_app_they_are_shown_as_stored(command: Command) -> None:
    """Whoever asks is told what is missing; machines are not."""
    name = ("office.note", "1")
    assert (await command("start", *name, '"tea"')).status == 0
    for args in (("get", *name), ("history", *name), ("trace", *name)):
        assert _NOTE in (await command(*args, app="")).err
        assert _NOTE not in (await command(*args)).err
        assert _NOTE not in (await command(*args, "--json", app="")).err


async def test_it_is_the_app_of_commands_that_are_given_none(command: Command) -> None:
    """One that is given counts; without either, the error says how to give one."""
    assert (await command("check-states")).status == 0
    assert "no module 'another'" in (await command("check-states", "another")).err
    assert "set PROGRESSOR_APP" in " ".join((await command("check-states", app="")).err.split())
    assert "no module 'another'" in (await command("get", "office.note", "1", app="another")).err
