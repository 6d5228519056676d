"""The commands of the pages on what is kept and deleted, one after the other, print what the pages show.

Rule: numbers and times are those of the example, so each stands for any. Where a page shows no output, the
command is run and succeeds. A line with a tool that is not installed is passed over.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from progressor import Engine, SyncClient
from progressor.archive.archive import Archive
from progressor.archive.records import TaskRecord
from progressor.archive.wholes import read_wholes
from progressor.cli import options
from progressor.cli.main import app
from tests.conftest import Databases
from tests.docs.pages import ROOT, blocks
from tests.docs.test_code import _execute_all
from tests.support import age

_HOW_TO = ROOT / "docs/how-to"
# A command, and where its output goes.
_COMMAND = re.compile(r"progressor (?P<args>.*?)( (?P<rest>(\||>>?) .*))?")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NUMBER = re.compile(r"(about )?[\d,.:-]*\d")
# Processes, and parts.
_COUNTED = re.compile(r"\bN (?:(\w+ss)(?:es)?|(\w+?)s?)\b")


class Line(NamedTuple):
    """A line that somebody types, and what the page shows below it."""

    command: str
    shown: list[str]


def _lines(page: str) -> Iterator[Line]:
    for block in blocks(_HOW_TO / page, "console"):
        for part in block.code.removeprefix("$ ").split("\n$ "):
            command, _, shown = part.partition("\n")
            yield Line(command, shown.splitlines())


def _outline(lines: list[str]) -> list[str]:
    """Lines with any number for each, of one thing or many, and without the widths of their columns."""
    return [_COUNTED.sub(r"N \1\2", " ".join(_NUMBER.sub("N", line).split())) for line in lines]


Type = Callable[[str], list[str]]


def _lacks_tool(command: str) -> bool:
    return "jq " in command and shutil.which("jq") is None


@pytest.fixture
def type_(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a command at a terminal, and `y` if it asks; returns what is shown there."""
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "_is_terminal", lambda: True)

    def shell(command: str, stdin: str = "") -> list[str]:
        ran = subprocess.run(
            command, shell=True, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, ""), command
        return ran.stdout.splitlines()

    def type_(command: str) -> list[str]:
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("=", 1))
            return []
        if _lacks_tool(command):
            return []
        found = _COMMAND.fullmatch(command)
        if found is None:
            return shell(command)
        ran = CliRunner().invoke(app, shlex.split(found["args"]), input="y\n")
        assert ran.exit_code == 0, (command, ran.output)
        if found["rest"] is None:
            return (ran.stderr + ran.stdout).splitlines()
        rest = found["rest"].removeprefix("| ")
        return [*ran.stderr.splitlines(), *shell(f"cat {rest}" if rest[0] == ">" else rest, ran.stdout)]

    return type_


def _follow(
    page: str, type_: Type, *, before: Mapping[str, str] = _NOTHING, named: Mapping[str, str] = _NOTHING
) -> dict[str, list[str]]:
    """Type all commands of a page, those of `before` before others, with the names that a test has.

    Return what each shows, which is what the page shows.
    """
    found = {}
    for line in _lines(page):
        for command in before.get(line.command, "").splitlines():
            type_(command)
        command = line.command
        for old, new in named.items():
            command = command.replace(old, new)
        shown = found[line.command] = type_(command)
        assert not line.shown or _lacks_tool(command) or _outline(shown) == _outline(line.shown), command
    return found


@pytest.fixture
def metered(dsn: str) -> None:
    """A meter that was read twice, long ago; no service is there."""
    listed = [each for each in blocks(_HOW_TO / "keep-for-years.md", "python") if each.runs]
    module = _execute_all(listed, dsn)

    async def work() -> None:
        async with Engine(dsn, [module.meters]) as engine:
            await engine.client.start("grid.meter", "m-17")
            for units in (3, 2):
                await engine.client.call("grid.meter", "m-17", "read", units)

    asyncio.run(work())
    asyncio.run(age(dsn, timedelta(days=100)))


@pytest.mark.usefixtures("metered")
def test_the_commands_of_a_retention(dsn: str, type_: Type) -> None:
    """An estimate deletes nothing; what an operator sets is asked for, holds, and is walked for."""
    walk = "progressor retention run grid.meter"
    shown = _follow("keep-for-years.md", type_, before={"progressor retention show grid.meter": walk})
    estimated, _, ended = shown.values()
    assert estimated[0].startswith("tasks   3 of 3 would be deleted")
    assert any(line.startswith("deleted    3 tasks, 0 events") for line in ended)
    with SyncClient(dsn) as client:
        assert client.trace("grid.meter", "m-17") == []


@pytest.mark.usefixtures("metered")
def test_the_commands_of_an_archive(dsn: str, type_: Type, tmp_path: Path) -> None:
    """What a walk deletes is archived, a history is read from both, and the archive is verified."""
    # By the page the two events of this meter would be too few to be deleted.
    walk = (
        "progressor retention set grid.meter --tasks 90d --events 1 --archive\n"
        "progressor retention run grid.meter"
    )
    place = tmp_path / "archive"
    shown = _follow(
        "archive.md",
        type_,
        before={"progressor history grid.meter m-17": walk},
        named={"/srv/progressor-archive": str(place), "2026-11-26": "*"},
    )
    assert "1 part with 5 lines, 0 damaged" in shown["progressor archive verify grid.meter"]
    removing = "progressor archive remove grid.meter m-17 m-18 --dry-run"
    assert shown[removing] == ["would be removed: 4 records of 1 process, from 1 part"]
    assert list(Archive(str(place)).parts("grid.meter")) == []
    with SyncClient(dsn) as client:
        assert client.get("grid.meter", "m-17", range=None).first_event_id == 2
    if shutil.which("jq") is not None:
        (read,) = [lines for command, lines in shown.items() if command.startswith("zcat ")]
        assert [json.loads(line)["task_type"] for line in read] == ["init", "call", "call"]


def test_the_commands_of_a_customer(dsn: str, type_: Type, tmp_path: Path) -> None:
    """All of the customer is handed out and then deleted, also in the archive; another one keeps all."""
    page, place = "delete-a-customer.md", tmp_path / "archive"
    _customers(page, dsn, acme=17, acme_trial=17, hooli=18)
    asyncio.run(age(dsn, timedelta(days=100)))
    type_(f"export PROGRESSOR_ARCHIVE={place}")
    type_("progressor retention set billing.subscription --tasks 90d --archive")
    type_("progressor retention run billing.subscription")
    _follow(page, type_)
    exported = list(read_wholes((tmp_path / "customer-17.ndjson").read_bytes().splitlines()))
    assert [each.process.process_id for each in exported] == ["acme", "acme-trial"]
    receipt = (tmp_path / "receipt.ndjson").read_text()
    assert [json.loads(line)["process_id"] for line in receipt.splitlines()] == ["acme", "acme-trial"]
    assert "paid" not in receipt
    with SyncClient(dsn) as client:
        left = client.search(namespace="billing.subscription").items
    assert [each.process_id for each in left] == ["hooli"]
    archive = Archive(str(place))
    ((name, manifest),) = archive.parts("billing.subscription")
    found = [each for each in archive.records(name, manifest) if isinstance(each, TaskRecord)]
    assert ([each.process_id for each in found], manifest.tasks, manifest.events) == (["hooli"], 1, 0)


def _customers(page: str, dsn: str, **customers: int) -> None:
    """Processes of the namespace of a page, one of each of these customers."""
    module = _execute_all([each for each in blocks(_HOW_TO / page, "python") if each.runs], dsn)

    async def work() -> None:
        async with Engine(dsn, [module.subscriptions]) as engine:
            for name, customer in customers.items():
                args = {"customer": customer}
                await engine.client.start("billing.subscription", name.replace("_", "-"), args)

    asyncio.run(work())


def test_the_commands_of_a_move(dsn: str, databases: Databases, template: str, type_: Type) -> None:
    """Processes are exported from a paused namespace, and are whole in another database."""
    name = databases.make(template)
    other = databases.dsn(name)
    for each, customers in ((dsn, {"acme": 17, "hooli": 18}), (other, {})):
        _customers("delete-a-customer.md", each, **customers)
    _follow("move-processes.md", type_, named={"postgresql://app@db2/billing": other})
    with SyncClient(other) as client:
        found = [client.get("billing.subscription", each) for each in ("acme", "hooli")]
    assert [(each.state, each.metadata) for each in found] == [
        ({"paid": 0}, {"customer": 17}),
        ({"paid": 0}, {"customer": 18}),
    ]
    databases.drop(name)
