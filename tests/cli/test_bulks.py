"""The commands on many broken processes, as a user has them at night."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from progressor import Client, Engine, HandlerFailed, Namespace, Process
from progressor.cli.bulk import read_rate
from progressor.cli.main import app

NS = "night.order"


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


WRONG: list[tuple[list[str], str]] = [
    (["--namespace", NS, "--rate", "fast"], "like 50/s"),
    (["--namespace", NS, "{}", "p1"], "no NAMESPACE and PROCESS_ID"),
    (["--namespace", NS, "--timeout", "5"], "no NAMESPACE and PROCESS_ID"),
    ([NS, "p1", "--dry-run"], "say of which namespace"),
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
