"""A restored copy does nothing by surprise: the statements of the page on backups, in their order."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from progressor import Client, Engine, Namespace, Process, ReplyTimeout, SetTimer
from tests.conftest import Databases
from tests.docs.pages import steps
from tests.support import SECOND, eventually

NS = "billing.subscription"
_PAST = datetime(2026, 1, 1, tzinfo=UTC)


def _billing(fired: list[str]) -> Namespace:
    billing = Namespace(NS)

    @billing.init
    async def begin(process: Process) -> None:
        pass

    @billing.call
    async def pay(process: Process) -> str:
        return "paid"

    @billing.timeout
    async def bill(process: Process) -> None:
        fired.append(process.process_id)

    return billing


async def test_a_restored_copy_fires_nothing_before_it_is_let_go(dsn: str, databases: Databases) -> None:
    """Workers that start register their namespace, and take neither its timers nor its requests."""
    async with Engine(dsn, [_billing([])]) as engine:
        await engine.client.start(NS, "acme")
    async with Client(dsn) as client:
        await client.put(NS, "late", action=SetTimer(at=_PAST))
    name = databases.make(str(conninfo_to_dict(dsn)["dbname"]))
    copy = databases.dsn(name)
    pause, overdue, runs = steps("docs/how-to/back-up-and-restore.md", "sql")
    with psycopg.connect(copy) as psql:
        assert psql.execute(pause.encode()).rowcount == 1
        assert [row[:3] for row in psql.execute(overdue.encode())] == [(NS, "timeout", 1)]
        assert psql.execute(runs.encode()).fetchall() == []
    fired: list[str] = []
    async with Engine(copy, [_billing(fired)], scan_interval=SECOND / 20) as engine:
        with pytest.raises(ReplyTimeout, match="paused"):
            await engine.client.call(NS, "acme", "pay", idempotency_key="payment-1", timeout=2)
        assert fired == []
        await engine.client.resume(NS)
        assert await engine.client.call(NS, "acme", "pay", idempotency_key="payment-1") == "paid"
        await eventually(lambda: fired == ["late"], "its timer fires")
    databases.drop(name)
