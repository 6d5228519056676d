"""The dry run of a repair, as people read it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from progressor import Engine, HandlerFailed, Namespace, Process
from progressor.cli.main import app

NS = "night.order"


def orders(*, removes: bool) -> Namespace:
    namespace = Namespace(NS)

    @namespace.init
    async def open_(process: Process) -> None:
        process.state = {"total": 7, "limit": 5}

    @namespace.call
    async def pay(process: Process) -> None:
        raise ConnectionError("no answer")

    @namespace.timeout
    async def remind(process: Process) -> None: ...

    @namespace.repair(dry_run=True)
    async def mend(process: Process, limit: int) -> None:
        process.state = {**process.state, "limit": limit}
        process.metadata["mended"] = "yes"
        process.set_timer(after=timedelta(days=1))
        process.send(NS, "other", "pay", {"amount": 2})
        if removes:
            process.remove()

    return namespace


def run(dsn: str, *args: str) -> str:
    result = CliRunner().invoke(app, list(args), env={"PROGRESSOR_DATABASE_URL": dsn})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("removes", [False, True])
async def test_what_would_change(dsn: str, removes: bool) -> None:
    """The lines of the state and of the metadata that differ, timers and messages; or the end of it."""
    async with Engine(dsn, [orders(removes=removes)], zombie_collector=False) as engine:
        await engine.client.start(NS, "p")
        with pytest.raises(HandlerFailed):
            await engine.client.call(NS, "p", "pay")
        shown = await asyncio.to_thread(run, dsn, "repair", NS, "p", "9", "--dry-run")
        found = await asyncio.to_thread(run, dsn, "repair", NS, "p", "9", "--dry-run", "--json")
        assert (await engine.client.get(NS, "p")).state == {"total": 7, "limit": 5}
    assert json.loads(found)["removed"] is removes
    assert ("the process would be removed" in shown) is removes
    if not removes:
        assert '-  "limit": 5\n+  "limit": 9\n' in shown
        assert '+  "mended": "yes"' in shown
        assert "its handler runs" in shown
    assert f"{NS}/other  notify pay" in shown
    assert "events  none" in shown
