"""The commands on many broken processes, as a user has them at night."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from progressor import Client, Engine, HandlerFailed, Namespace, Process
from progressor.bulks import Bulk, BulkStatus
from progressor.cli import bulk as bulk_module
from progressor.cli.bulk import read_rate
from progressor.cli.main import app
from progressor.errors import StorageUnavailable

NS = "night.order"
NOW = datetime(2040, 1, 1, tzinfo=UTC)


class Fee(BaseModel):
    amount: int


def orders() -> Namespace:
    namespace = Namespace(NS)

    @namespace.init
    async def open_(process: Process) -> None: ...

    @namespace.call
    async def pay(process: Process, number: int) -> None:
        raise ConnectionError(f"no answer {number}")

    return namespace


@pytest.fixture
async def broken(dsn: str) -> str:
    """A database in which three processes are broken, and nobody collects zombies."""
    async with Engine(dsn, [orders()], zombie_collector=False) as engine:
        for n in range(3):
            await engine.client.start(NS, f"p{n}")
            with pytest.raises(HandlerFailed):
                await engine.client.call(NS, f"p{n}", "pay", n)
    return dsn


def run(dsn: str, *args: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(args), env={"PROGRESSOR_DATABASE_URL": dsn})
    assert result.exit_code == status, result.output
    return result.output


def test_a_dry_run(broken: str) -> None:
    """It shows the groups, and writes nothing; a pattern without % is explained."""
    shown = run(broken, "repair", "--namespace", NS, "--status", "error", "--dry-run")
    assert "ConnectionError: no answer #" in shown
    assert "p0, p1, p2" in shown
    assert "3 of 3 broken processes would be repaired; nothing was written" in shown
    found = json.loads(run(broken, "repair", "-n", NS, "--dry-run", "--json"))
    assert (found["processes"], found["groups"][0]["handler"]) == (3, "pay")
    shown = run(broken, "repair", "-n", NS, "--detail-like", "answer", "--dry-run")
    assert "'%answer%' finds it anywhere" in shown
    assert json.loads(run(broken, "bulks", "--json")) == []


def test_stopping_one(broken: str) -> None:
    """Nobody runs it, so it is stopped at once; watched, that is no success."""
    run(broken, "repair", "-n", NS, "--simple")
    assert json.loads(run(broken, "stop-bulk", "1", "--json"))["status"] == "stopped"
    assert "stopped" in run(broken, "bulk", "1", "--wait", status=1)
    assert "there is no bulk 2; `progressor bulks` lists" in run(broken, "stop-bulk", "2", status=1)


def unfolded(text: str) -> str:
    """An error without the frame that a narrow terminal folds it in."""
    return " ".join(text.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())


def test_one_that_redoes(broken: str) -> None:
    """It is shown as such; for one process there is a command of its own."""
    made = json.loads(run(broken, "repair", "-n", NS, "--simple", "--redo", "--json"))
    assert (made["redo"], made["redone"]) == (True, 0)
    shown = run(broken, "bulk", "1")
    assert "without a handler, with redo" in shown
    assert "redone" in shown
    for option, says in (("--simple", "progressor simple-repair"), ("--redo", "progressor redo")):
        refused = unfolded(run(broken, "repair", NS, "p0", option, status=2))
        assert f"{option} must stand beside --namespace" in refused
        assert says in refused
    assert "--rate must stand beside" in unfolded(
        run(broken, "repair", NS, "p0", "--rate", "1/s", status=2)
    )
    assert "--watch must stand beside" in unfolded(run(broken, "repair", "--watch", status=2))


class Looks:
    """Stands where a client would: what each look finds."""

    def __init__(self, *found: Bulk | Exception) -> None:
        self._found = iter(found)

    async def bulk(self, bulk_id: int) -> Bulk:
        found = next(self._found)
        if isinstance(found, Exception):
            raise found
        return found


async def test_a_watch_goes_on_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for one that is there from the start."""
    monkeypatch.setattr(bulk_module, "_LOOKS", 0)
    running = Bulk(1, NS, BulkStatus.RUNNING, NOW, None, 50.0, True)
    ended = replace(running, status=BulkStatus.FINISHED, ended_at=NOW)
    away = StorageUnavailable("gone")
    client: Any = Looks(running, away, away, running, away, ended)
    assert await bulk_module._until_ended(client, 1, quiet=False) == ended
    client = Looks(away, ended)
    with pytest.raises(StorageUnavailable):
        await bulk_module._until_ended(client, 1, quiet=False)


def test_what_is_left(broken: str) -> None:
    """And how long that takes at its rate."""
    run(broken, "repair", "-n", NS, "--simple", "--rate", "1/h")
    assert "3, which takes 3 h or more" in run(broken, "bulk", "1")
    run(broken, "stop-bulk", "1")
    shown = run(broken, "bulk", "1")
    assert "takes" not in shown
    assert "what it has not begun stays broken" in shown
    assert "ended" in shown


def test_one_that_was_made_before(broken: str) -> None:
    """With the key of a bulk that was stopped nothing begins, and that is said; without it another does."""
    given = ("repair", "-n", NS, "--simple", "--idempotency-key", "tonight")
    for _ in range(2):
        assert "bulk 1 repairs night.order in the background" in run(broken, *given)
    run(broken, "stop-bulk", "1")
    shown = run(broken, *given)
    assert "bulk 1 of night.order is stopped" in shown
    assert "another key makes another one" in shown
    assert "nothing is begun" in run(broken, *given, "--watch", status=1)
    assert "bulk 2 repairs" in run(broken, *given[:-2])


WRONG: list[tuple[list[str], str]] = [
    (["--namespace", NS, "--rate", "fast"], "like 50/s"),
    (["--namespace", NS, "{}", "p1"], "no NAMESPACE and PROCESS_ID"),
    (["--namespace", NS, "--timeout", "5"], "no NAMESPACE and PROCESS_ID"),
    ([NS], "give NAMESPACE and PROCESS_ID"),
    (["--namespace", NS, "{"], "not JSON"),
    (["--namespace", NS, "{}", "--simple"], "takes no args"),
]


@pytest.mark.parametrize(("args", "says"), WRONG, ids=lambda value: str(value)[:40])
def test_what_is_misunderstood(broken: str, args: list[str], says: str) -> None:
    """A usage error says what to give, and nothing is stored."""
    shown = " ".join(run(broken, "repair", *args, status=2).replace("│", " ").split())
    assert says in shown
    assert json.loads(run(broken, "bulks", "--json")) == []


async def test_args_are_checked_first(broken: str) -> None:
    """ARGS that the repair handler does not take are refused, as over HTTP, and with a dry run too."""
    namespace = orders()

    @namespace.repair
    async def mend(process: Process, args: Fee) -> None: ...

    wrong = [
        (('{"amount": "much"}',), "ARGS.amount: "),
        ((), "ARGS: "),
        (("7", "--simple"), "takes no args"),
    ]
    async with Engine(broken, [namespace], zombie_collector=False):
        for more, says in wrong:
            for how in ((), ("--dry-run",), ("--dry-run", "--json")):
                shown = await asyncio.to_thread(run, broken, "repair", "-n", NS, *more, *how, status=2)
                assert says in shown
        assert json.loads(await asyncio.to_thread(run, broken, "bulks", "--json")) == []
        for how in (("--dry-run",), ()):
            shown = await asyncio.to_thread(run, broken, "repair", "-n", NS, '{"amount": 7}', *how)
            assert "repair" in shown


@pytest.mark.parametrize("how", [("--dry-run",), ("--simple",), ("--simple", "--json")], ids=" ".join)
def test_a_filter_that_matches_nothing(broken: str, how: tuple[str, ...]) -> None:
    """A handler that is misspelled is named, with those that broke something there."""
    shown = run(broken, "repair", "-n", NS, "--handler", "pya", "--detail-like", "No%", *how)
    assert "nothing that is broken matches --detail-like No% --handler pya" in shown
    assert "these broke there: pay (3)" in shown
    assert "nothing" not in run(broken, "repair", "-n", NS, "--handler", "pay", *how).replace(
        "nothing was written", ""
    )


async def test_its_args_are_shown(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a size; a bulk without args shows none."""
    namespace = orders()

    @namespace.repair
    async def mend(process: Process, args: Fee) -> None: ...

    async def shown(*args: str) -> str:
        return await asyncio.to_thread(run, broken, *args)

    async with Engine(broken, [namespace], zombie_collector=False):
        await shown("repair", "-n", NS, '{"amount": 7}', "--rate", "1/h")
    assert re.search(r'args +\{"amount": ?7\}', await shown("bulk", "1"))
    found = json.loads(await shown("bulk", "1", "--json"))
    assert (found["args"], found["args_bytes"]) == ({"amount": 7}, len(b'{"amount":7}'))
    monkeypatch.setattr(bulk_module, "_MOST_ARGS", 3)
    assert "12 bytes" in await shown("bulk", "1")
    assert json.loads(await shown("bulk", "1", "--json"))["args"] is None
    assert "12 bytes" in await shown("stop-bulk", "1")
    await shown("repair", "-n", NS, "--simple")
    assert "args" not in await shown("bulk", "2")


async def test_nothing_is_broken(dsn: str) -> None:
    """A bulk says so."""
    async with Engine(dsn, [orders()], zombie_collector=False):
        shown = await asyncio.to_thread(run, dsn, "repair", "-n", NS, "--simple")
    assert f"no process of {NS} is broken" in shown


RATES: dict[str, Any] = {"50/s": 50, "90/m": 1.5, "1/h": 1 / 3600, "0.5/s": 0.5, "7": 7}


@pytest.mark.parametrize("text", RATES)
def test_rates(text: str) -> None:
    """So many a second, a minute or an hour."""
    assert read_rate(text) == pytest.approx(RATES[text])


async def test_one_process_is_repaired_as_before(broken: str) -> None:
    """NAMESPACE and PROCESS_ID mean one process."""
    namespace = orders()

    @namespace.repair
    async def mend(process: Process, args: int) -> int:
        return args + 1

    async with Engine(broken, [namespace]), Client(broken) as client:
        assert await asyncio.to_thread(run, broken, "repair", NS, "p0", "41") == "42\n"
        assert (await client.get(NS, "p0")).status == "running"
