"""Namespaces are paused and resumed over HTTP, and it is listed who serves what."""

from __future__ import annotations

import httpx

NS = "/v1/namespaces/shop.order"


async def test_pausing_and_resuming(api: httpx.AsyncClient) -> None:
    """A request that comes meanwhile is accepted, and is answered after the resume."""
    assert (await api.post(f"{NS}/pause")).status_code == 204
    assert (await api.post(f"{NS}/pause")).status_code == 204
    (known,) = (await api.get("/v1/namespaces")).json()["namespaces"]
    assert (known["name"], known["paused"], known["workers"]) == ("shop.order", True, 1)
    order = f"{NS}/processes/o1"
    started = await api.post(order, json={"item": "tea", "count": 2}, headers={"Prefer": "respond-async"})
    assert started.status_code == 202
    assert (await api.post(f"{NS}/resume")).status_code == 204
    answer = await api.get(started.headers["Location"], headers={"Prefer": "wait=30"})
    assert answer.status_code == 200
    assert not (await api.get(NS)).json()["paused"]


async def test_workers(api: httpx.AsyncClient) -> None:
    """Each with what it serves."""
    (worker,) = (await api.get("/v1/workers")).json()["workers"]
    assert (worker["namespaces"], worker["is_live"]) == (["shop.order"], True)


async def test_a_namespace_that_nobody_knows(api: httpx.AsyncClient) -> None:
    """It cannot be paused."""
    for verb in ("pause", "resume"):
        refused = await api.post(f"/v1/namespaces/nobody.knows/{verb}")
        assert refused.status_code == 404
        assert refused.json()["type"] == "urn:progressor:problem:namespace-not-found"
