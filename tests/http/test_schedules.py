"""Schedules over HTTP: they are processes like all others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from progressor import Cron, Namespace, Process
from progressor.http.client.client import HttpClient
from progressor.schedules import SCHEDULES, Span, backfill, pause, resume
from tests.http.conftest import Serve
from tests.support import eventually

NS = "shop.order"


async def test_calls_of_a_schedule(serve: Serve) -> None:
    """By function, with the slash of its id; its answer has times."""
    begun: list[str] = []
    orders: Namespace[Any] = Namespace(NS)

    @orders.init
    async def begin(process: Process[Any]) -> None:
        begun.append(process.process_id)

    orders.schedule("yearly", Cron("0 0 1 1 *"), start=lambda at: f"{at:%Y}", overlap="allow")
    api = await serve(orders)
    transport = api._transport
    async with HttpClient("http://testserver", transport=transport) as client:
        await client.call(pause, f"{NS}/yearly", "audit")
        paused = await client.get(SCHEDULES, f"{NS}/yearly")
        assert paused.state["reason"] == "audit"
        await client.call(resume, f"{NS}/yearly")
        since = datetime(2019, 12, 31, tzinfo=UTC)
        span = Span(since=since, until=since + timedelta(days=2))
        times = await client.call(backfill, f"{NS}/yearly", span)
        assert times == [datetime(2020, 1, 1, tzinfo=UTC)]
    await eventually(lambda: begun == ["2020"], "it is started")
    found = await api.get(f"/v1/namespaces/{SCHEDULES}/processes/shop.order%2Fyearly")
    assert isinstance(found, httpx.Response)
    assert found.json()["metadata"] == {"namespace": NS, "schedule": "yearly"}
