"""Namespaces are paused, resumed and retired over HTTP; and how they do, what fails, who serves what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.http.conftest import opened

NS = "/v1/namespaces/shop.order"
ORDER = f"{NS}/processes/o1"


async def test_pausing_and_resuming(api: httpx.AsyncClient) -> None:
    """A request that comes meanwhile is accepted, and is answered after the resume."""
    assert (await api.post(f"{NS}/pause")).status_code == 204
    assert (await api.post(f"{NS}/pause")).status_code == 204
    (known,) = (await api.get("/v1/namespaces")).json()["namespaces"]
    assert (known["name"], known["paused"], known["workers"]) == ("shop.order", True, 1)
    order = f"{NS}/processes/o1"
    started = await api.post(order, json={"item": "tea", "count": 2}, headers={"Prefer": "respond-async"})
    assert (started.status_code, started.json()["paused"]) == (202, True)
    waiting = await api.get(started.headers["Location"])
    why = {"served": True, "requests_before": 0}
    assert (waiting.status_code, waiting.json()) == (202, started.json() | why)
    assert (await api.post(f"{NS}/resume")).status_code == 204
    answer = await api.get(started.headers["Location"], headers={"Prefer": "wait=30"})
    assert answer.status_code == 200
    assert not (await api.get(NS)).json()["paused"]


async def test_workers(api: httpx.AsyncClient) -> None:
    """Each with what it serves."""
    (worker,) = (await api.get("/v1/workers")).json()["workers"]
    assert (worker["namespaces"], worker["is_live"]) == (["shop.order"], True)


async def test_a_namespace_that_nobody_knows(api: httpx.AsyncClient) -> None:
    """It cannot be paused, resumed or retired, and nothing is said of it."""
    asked = [("POST", f"/v1/namespaces/nobody.knows/{verb}") for verb in ("pause", "resume", "retire")]
    asked += [("GET", f"/v1/{page}?namespace=nobody.knows") for page in ("status", "errors")]
    for method, path in asked:
        refused = await api.request(method, path)
        assert refused.status_code == 404
        assert refused.json()["type"] == "urn:progressor:problem:namespace-not-found"


async def test_a_namespace_in_use_is_not_retired(api: httpx.AsyncClient) -> None:
    """409 says what is left."""
    refused = await api.post(f"{NS}/retire")
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["type"] == "urn:progressor:problem:namespace-in-use"
    assert (problem["namespace"], problem["workers"], problem["processes"]) == ("shop.order", 1, 0)


async def test_retiring(dsn: str, api: httpx.AsyncClient) -> None:
    """One that nobody serves is forgotten; once."""
    await opened(dsn, "shop.old")
    assert "shop.old" in await _names(api)
    assert (await api.post("/v1/namespaces/shop.old/retire")).status_code == 204
    assert "shop.old" not in await _names(api)
    assert (await api.post("/v1/namespaces/shop.old/retire")).status_code == 404


async def _names(api: httpx.AsyncClient) -> list[str]:
    return [each["name"] for each in (await api.get("/v1/namespaces")).json()["namespaces"]]


async def test_how_a_namespace_does(api: httpx.AsyncClient) -> None:
    """What waits, for how long, what is broken, what was started, and who serves it."""
    await api.post(ORDER, json={"item": "tea"})
    await api.post(f"{ORDER}/calls/break")
    for process_id in ("o2", "o3"):
        await api.post(f"{NS}/processes/{process_id}", json={"item": "tea"})
    at = datetime.now(UTC) + timedelta(hours=1)
    await api.patch(f"{NS}/processes/o2/timers/default", json={"at": at.isoformat()})
    await api.post(f"{NS}/pause")
    await api.post(f"{NS}/processes/o3/notices/echo", json=1)
    (status,) = (await api.get("/v1/status")).json()["namespaces"]
    assert status["calls"].pop("age") >= 0
    waiting = status.pop("waiting")
    (deepest,) = waiting.pop("deepest")
    assert min(waiting.pop("age"), deepest.pop("age")) >= 0
    assert waiting == {"requests": 1, "at_least": False}
    assert deepest == {"process_id": "o3", "requests": 1, "at_least": False, "through_in": None}
    mailbox = (await api.get(f"{NS}/processes/o3/mailbox")).json()
    assert (mailbox["requests"], mailbox["through_in"]) == (1, None)
    (due,) = status.pop("next_timers")
    assert datetime.fromisoformat(due) == at
    assert status == {
        "name": "shop.order",
        "paused": True,
        "workers": 1,
        "slots": 100,
        "free_slots": status["free_slots"],
        "running": 0,
        "calls": {"tasks": 1},
        "timers": {"tasks": 0, "age": 0.0},
        "broken": 1,
        "started": 3,
        # As it said with its last sign of life.
        "steps": status["steps"],
        "through_in": status["through_in"],
        "pause_reason": None,
    }
    assert status["steps"] >= 0
    one = (await api.get("/v1/status", params={"namespace": "shop.order"})).json()["namespaces"]
    assert [each["name"] for each in one] == ["shop.order"]


async def test_what_fails(api: httpx.AsyncClient) -> None:
    """In groups; since a time, or in the last while."""
    for number in range(3):
        await api.post(f"{NS}/processes/o{number}", json={"item": "tea"})
        await api.post(f"{NS}/processes/o{number}/calls/break")
    (group,) = (await api.get("/v1/errors")).json()["groups"]
    assert (group["namespace"], group["status"], group["handler"], group["count"]) == (
        "shop.order",
        "broken",
        "call break",
        3,
    )
    assert group["message"] == "RuntimeError: a secret of the handler"
    assert (group["process_id"], group["at_least"]) == ("o2", False)
    for since in ("3600", "PT1H", "P999999999D", "1999-12-31T23:59:59Z", group["last_seen"]):
        found = (await api.get("/v1/errors", params={"since": since})).json()
        assert len(found["groups"]) == 1, since
    for since in ("0", "2999-01-01T00:00:00Z"):
        assert (await api.get("/v1/errors", params={"since": since})).json()["groups"] == []


@pytest.mark.parametrize("since", ["", "x", "1999-12-31", "2020-01-01T00:00:00", "-5", "1e400", "9" * 30])
async def test_a_time_that_is_none(api: httpx.AsyncClient, since: str) -> None:
    """Refused by the name of the parameter."""
    refused = await api.get("/v1/errors", params={"since": since})
    assert (refused.status_code, refused.json()["field"]) == (400, "since")


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_simple_bulk_takes_no_args(api: httpx.AsyncClient, dry_run: bool) -> None:
    """A dry run is refused as the bulk is."""
    body = {"namespace": "shop.order", "simple": True, "args": {"who": "me"}, "dry_run": dry_run}
    refused = await api.post("/v1/bulk", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "args")


async def test_groups(api: httpx.AsyncClient) -> None:
    """Their limits are set and shown; what cannot be a limit is refused."""
    assert (await api.get(f"{NS}/groups")).json() == {"groups": []}
    for group in ("acme", "other%2Fone"):
        answer = await api.put(f"{NS}/groups/{group}/limit", params={"limit": 3})
        assert answer.status_code == 204
    first, second = (await api.get(f"{NS}/groups")).json()["groups"]
    assert first == {
        "namespace": "shop.order",
        "name": "acme",
        "limit": 3,
        "has_own_limit": True,
        "running": 0,
        "waiting": 0,
        "age": 0.0,
    }
    assert second["name"] == "other/one"
    assert (await api.put(f"{NS}/groups/acme/limit")).status_code == 204
    (only,) = (await api.get(f"{NS}/groups", params={"limit": 1})).json()["groups"]
    assert (only["limit"], only["has_own_limit"]) == (None, False)
    assert (await api.get(f"{NS}/groups", params={"after": "acme"})).json()["groups"] == [second]
    assert (await api.put(f"{NS}/groups/acme/limit", params={"limit": -1})).status_code == 400
