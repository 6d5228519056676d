"""What a fail-over or a restore lost, over HTTP: a problem of its own, and nobody else's answer."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from progressor import RequestLost
from progressor.http.client.client import HttpClient
from tests.http import shop
from tests.http.conftest import Serve
from tests.http.shop import Gate
from tests.support import Tables, eventually

ORDER = "/v1/namespaces/shop.order/processes/o1"
ASYNC = {"Prefer": "respond-async"}


async def test_the_address_of_a_task_names_the_request(serve: Serve, tables: Tables) -> None:
    """The task that has its number since is another one: 503, request-lost. Bare, the number shows it."""
    api = await serve(shop.make())
    await api.post(ORDER, json={"item": "tea"})
    mark = tables.mark()
    key = {"Idempotency-Key": "first"}
    first = await api.post(f"{ORDER}/calls/pay", json={"amount": 1}, headers=key)
    tables.fall_back(mark)
    second = await api.post(f"{ORDER}/calls/pay", json={"amount": 5})
    before, now = (each.headers["Content-Location"] for each in (first, second))
    assert before.partition("?")[0] == now.partition("?")[0]
    lost = await api.get(before)
    assert (lost.status_code, lost.json()["type"]) == (503, "urn:progressor:problem:request-lost")
    assert (await api.get(now)).text == second.text
    assert (await api.get(now.partition("?")[0])).text == second.text
    # Asked again, it is run.
    again = await api.post(f"{ORDER}/calls/pay", json={"amount": 1}, headers=key)
    assert again.status_code == 200
    assert "Idempotent-Replayed" not in again.headers


async def test_the_address_of_a_start_that_is_lost_with_its_process(serve: Serve, tables: Tables) -> None:
    """503, request-lost, also if the namespace is lost too; without the fingerprint there is no process."""
    api = await serve(shop.make())
    mark = tables.mark()
    key = {"Idempotency-Key": "first"}
    started = await api.post(ORDER, json={"item": "tea"}, headers={**ASYNC, **key})
    assert started.status_code == 202
    address = started.headers["Location"]
    await eventually(lambda: tables.process("o1")["status"] != "init", "its init is over")
    tables.fall_back(mark)
    elsewhere = address.replace("shop.order", "shop.lost")
    for each in (address, elsewhere):
        lost = await api.get(each)
        assert (lost.status_code, lost.json()["type"]) == (503, "urn:progressor:problem:request-lost")
        assert lost.json()["is_certain"] is False
    for each, problem in ((address, "process-not-found"), (elsewhere, "namespace-not-found")):
        bare = await api.get(each.partition("?")[0])
        assert (bare.status_code, bare.json()["type"]) == (404, f"urn:progressor:problem:{problem}")
    # Asked again, it is run.
    again = await api.post(ORDER, json={"item": "tea"}, headers=key)
    assert again.status_code in (200, 201)
    assert "Idempotent-Replayed" not in again.headers


@pytest.mark.parametrize("fingerprint", ["short", "x" * 17, "%20" * 16])
async def test_a_fingerprint_that_is_none_is_refused(api: httpx.AsyncClient, fingerprint: str) -> None:
    """By the name of the parameter."""
    refused = await api.get(f"{ORDER}/tasks/1?fingerprint={fingerprint}")
    assert (refused.status_code, refused.json()["field"]) == (400, "fingerprint")


async def test_an_http_client_is_told(serve: Serve, tables: Tables) -> None:
    """Who waits and who has a receipt gets RequestLost, at once, and not the answer of another call."""
    gate = Gate()
    api = await serve(shop.make(gate))
    async with HttpClient("http://api", transport=api._transport) as client:
        await client.start("shop.order", "o1", {"item": "tea"})
        mark = tables.mark()
        receipt = await client.submit_call("shop.order", "o1", "wait")
        waiting = asyncio.create_task(client.call("shop.order", "o1", "wait", timeout=30))
        await gate.entered()
        await eventually(lambda: len(tables.tasks("o1")) == 3, "both are accepted")
        tables.fall_back(mark)
        for answer in (waiting, client.answer(receipt)):
            with pytest.raises(RequestLost):
                await answer
        now = await client.submit_call("shop.order", "o1", "pay", {"amount": 5})
        assert now.task_id == receipt.task_id
        assert await client.answer(now) == "5"
        with pytest.raises(RequestLost):
            await client.answer(receipt)
        gate.open()
