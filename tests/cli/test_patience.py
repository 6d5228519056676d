"""The line of a command that waits: what a request waits for though a worker serves its namespace."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Engine, Namespace, Process, Rate, ReplyTimeout
from progressor.cli import patience
from tests.cli.conftest import NS


def worked(may_end: asyncio.Event, **options: Any) -> Namespace[None]:
    """A namespace whose calls run until they may end."""
    namespace = Namespace(NS, **options)

    @namespace.init
    async def begin(process: Process[None]) -> None: ...

    @namespace.call
    async def work(process: Process[None]) -> None:
        await may_end.wait()

    return namespace


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"group": lambda _args: "team", "group_limit": 1},
            "waiting for room in the group team, of which at most 1 run at once; ",
        ),
        (
            {"group": lambda _args: "team", "group_rate": Rate(1, per=timedelta(hours=1), burst=3)},
            "waiting for room in the group team, or for its rate; ",
        ),
        ({"pause": timedelta(seconds=60)}, "for the pause after the step before it; "),
        (
            {"rate": Rate(1, per=timedelta(hours=1), burst=3)},
            f"waiting for a worker of the namespace {NS}, or for its rate; ",
        ),
        ({"concurrency": 1}, f"waiting for a worker of the namespace {NS}; "),
    ],
    ids=["group", "group rate", "pause", "rate", "slots"],
)
async def test_what_is_held_says_by_what(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: Any, said: str
) -> None:
    """Room in a group, its rate, the pause after a step, the rate of the namespace."""
    monkeypatch.setattr(patience, "_MOMENT", timedelta(milliseconds=500))
    may_end = asyncio.Event()
    async with Engine(dsn, [worked(may_end, **options)]) as engine, Client(dsn) as client:
        for name in ("p1", "p2"):
            await engine.client.start(NS, name)
        await client.submit_call(NS, "p1", "work")
        receipt = await client.submit_call(NS, "p2", "work")
        with pytest.raises(ReplyTimeout):
            await patience._answer(client, receipt, timedelta(seconds=1), machine=False)
        may_end.set()
    assert said in capsys.readouterr().err
