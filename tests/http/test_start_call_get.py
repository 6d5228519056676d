"""Start, call and get over HTTP."""

from __future__ import annotations

import httpx

ORDER = "/v1/namespaces/shop.order/processes/o1"


async def test_a_process_is_started_called_and_read(api: httpx.AsyncClient) -> None:
    """Bodies are the arguments and the answers themselves."""
    started = await api.post(ORDER, json={"item": "tea", "count": 2})
    assert (started.status_code, started.json()) == (201, "2 x tea")
    assert started.headers["Location"] == ORDER
    paid = await api.post(f"{ORDER}/calls/pay", json={"amount": "12.50"})
    assert (paid.status_code, paid.json()) == (200, "12.50")
    process = await api.get(ORDER, params={"history": "last:1"})
    assert process.status_code == 200
    seen = process.json()
    assert (seen["process_id"], seen["status"], seen["last_event_id"]) == ("o1", "running", 2)
    assert seen["state"] == {"item": "tea", "paid": "12.50"}
    assert [event["name"] for event in seen["history"]] == ["paid"]


async def test_an_error_is_a_problem(api: httpx.AsyncClient) -> None:
    """With its type, and the error's attributes as members."""
    missing = await api.post(f"{ORDER}/calls/pay", json={"amount": 1})
    assert missing.status_code == 404
    assert missing.headers["Content-Type"] == "application/problem+json"
    document = missing.json()
    assert document["type"] == "urn:progressor:problem:process-not-found"
    assert (document["namespace"], document["process_id"]) == ("shop.order", "o1")
