"""Which scope each route needs, and which namespaces each list shows.

Rule: every route of the application has a row here. One without fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import pytest

from progressor import Client, Engine, HandlerFailed, Namespace, Process, ProcessNotFound
from progressor.archive.records import MessageRecord, write_line
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.operation import Operation
from progressor.http.wire.headers import LINES
from progressor.http.wire.paths import segment_of
from progressor.rights import Scope
from tests.http.conftest import asking
from tests.open_access import OpenAccess
from tests.transfers import made as made_whole

_PROCESS = "/v1/namespaces/{namespace}/processes/{process_id}"
PUBLIC: tuple[str, ...] = ()


class Row(NamedTuple):
    """A route, and the scopes with all of which alone it does what it does."""

    method: str
    path: str
    scopes: tuple[str, ...]
    query: str = ""


MATRIX = [
    Row("GET", "/health/live", PUBLIC),
    Row("GET", "/health/ready", PUBLIC),
    Row("GET", "/health", ("admin",)),
    Row("GET", "/metrics", ("admin",)),
    Row("GET", "/openapi.json", PUBLIC),
    Row("GET", "/v1/workers", ("admin",)),
    Row("POST", "/v1/bulk", ("bulk",)),
    Row("GET", "/v1/bulk", ("bulk",)),
    Row("GET", "/v1/bulk/{bulk_id}", ("bulk",)),
    Row("POST", "/v1/bulk/{bulk_id}/stop", ("bulk",)),
    Row("GET", "/v1/namespaces", ("processes:read",)),
    Row("POST", "/v1/namespaces/{namespace}/pause", ("admin",)),
    Row("POST", "/v1/namespaces/{namespace}/resume", ("admin",)),
    Row("POST", "/v1/namespaces/{namespace}/retire", ("admin",)),
    Row("GET", "/v1/namespaces/{namespace}/groups", ("processes:read",)),
    Row("PUT", "/v1/namespaces/{namespace}/groups/{group}/limit", ("admin",), "?limit=3"),
    Row("GET", "/v1/namespaces/{namespace}/retention", ("processes:read",)),
    Row("PUT", "/v1/namespaces/{namespace}/retention", ("admin",), "?tasks=P90D"),
    Row("DELETE", "/v1/namespaces/{namespace}/retention", ("admin",)),
    Row("GET", "/v1/namespaces/{namespace}/retention/estimate", ("processes:read",)),
    Row("POST", "/v1/namespaces/{namespace}/retention/run", ("admin",)),
    Row(
        "GET",
        "/v1/namespaces/{namespace}/export",
        ("admin", "processes:read", "state:read", "errors:read"),
    ),
    Row("POST", "/v1/namespaces/{namespace}/import", ("admin", "processes:put")),
    Row("GET", "/v1/status", ("processes:read",)),
    Row("GET", "/v1/errors", ("errors:read", "processes:read")),
    Row("GET", "/v1/audit", ("audit:read",)),
    Row("GET", "/v1/feed", ("processes:read", "state:read")),
    Row("GET", "/v1/feed", ("processes:read",), "?kinds=created"),
    Row("GET", "/v1/namespaces/{namespace}", ("processes:read",)),
    Row("GET", "/v1/namespaces/{namespace}/openapi.json", ("processes:read",)),
    Row("GET", "/v1/processes", ("processes:read",)),
    Row("GET", "/v1/processes", ("processes:read", "state:read"), "?state=true"),
    Row("GET", _PROCESS, ("processes:read", "state:read")),
    Row("GET", _PROCESS, ("processes:read",), "?state=false"),
    Row("GET", _PROCESS, ("processes:read", "state:read"), "?state=false&history=last:1"),
    Row("GET", _PROCESS + "/events", ("state:read",)),
    Row("GET", _PROCESS + "/watch", ("processes:read", "state:read"), "?after=none"),
    Row("GET", _PROCESS + "/watch", ("processes:read",), "?events=false&after=none"),
    Row("GET", _PROCESS + "/trace", ("state:read",)),
    Row("GET", _PROCESS + "/mailbox", ("processes:read",)),
    Row("GET", _PROCESS + "/tasks/{task_id}", ("processes:read",)),
    Row("POST", _PROCESS + "/tasks/{task_id}/redo", ("processes:call",)),
    Row("POST", _PROCESS, ("processes:start",)),
    Row("POST", _PROCESS + "/calls/{name}", ("processes:call",)),
    Row("POST", _PROCESS + "/notices/{name}", ("processes:call",)),
    Row("POST", _PROCESS + "/repairs", ("processes:repair",)),
    Row("POST", _PROCESS + "/repairs", ("processes:repair", "state:read"), "?dry_run=true"),
    Row("PATCH", _PROCESS + "/timers/{timer}", ("processes:repair",)),
    Row("DELETE", _PROCESS + "/timers/{timer}", ("processes:repair",)),
    Row("POST", _PROCESS + "/timers/{timer}/fire", ("processes:repair",)),
    Row("PUT", _PROCESS, ("processes:put",)),
    Row("DELETE", _PROCESS, ("processes:remove",)),
    Row(
        "DELETE",
        "/v1/namespaces/{namespace}/processes",
        ("processes:remove", "processes:read"),
        "?status=error&dry_run=true",
    ),
]


def routes() -> set[tuple[str, str]]:
    """All that the application answers to."""
    app = make_app(Client("postgresql://nowhere"), access=OpenAccess())
    return {(method, route.path) for route in app.routes for method in route.methods}  # type: ignore[attr-defined]


def test_every_route_has_its_row() -> None:
    """And every row its route."""
    assert routes() == {(row.method, row.path) for row in MATRIX}


def made(name: str) -> Namespace:
    """A namespace whose processes have a state, a call and a repair."""
    namespace = Namespace(name)

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.state = "hidden"

    @namespace.call
    async def ask(process: Process[Any]) -> str:
        return "answer"

    @namespace.call
    async def fail(process: Process[Any]) -> None:
        raise KeyError("hidden")

    @namespace.repair(dry_run=True)
    async def mend(process: Process[Any]) -> None:
        """Nothing to do."""

    return namespace


class World:
    """A guarded API over three namespaces, and callers with tokens of any rights."""

    def __init__(self, client: Client, api: httpx.AsyncClient) -> None:
        self.client, self._api = client, api

    async def ask(
        self,
        method: str,
        path: str,
        *scopes: str,
        namespaces: tuple[str, ...] = ("shop.*",),
        json: Any = None,
        lines: bytes | None = None,
    ) -> httpx.Response:
        _, bearer = await self.client.tokens.create(
            "test", scopes=scopes, namespaces=namespaces, lifetime=None
        )
        said = {"Authorization": f"Bearer {bearer.text}"}
        if lines is not None:
            said["Content-Type"] = LINES
        return await self._api.request(method, path, headers=said, json=json, content=lines)

    async def ask_as_nobody(self, method: str, path: str) -> httpx.Response:
        return await self._api.request(method, path)


@pytest.fixture
async def world(dsn: str) -> AsyncIterator[World]:
    names = ("billing", "shop.a", "shop.b")
    async with Engine(dsn, [made(name) for name in names]) as engine, Client(dsn) as client:
        for number in range(6):
            await engine.client.start(names[number % 3], f"p{number}")
        app = make_app(client, access=Authenticator(client.tokens, AccessOptions()))
        async with asking(app) as api:
            yield World(client, api)


def _at(row: Row, namespace: str = "shop.a") -> str:
    filled = row.path.format(
        namespace=namespace,
        process_id="p1",
        name="ask",
        task_id=1,
        timer="default",
        bulk_id=1,
        group="acme",
    )
    return filled + row.query


def without_body() -> list[Row]:
    """The routes that change something and read no body."""
    app = make_app(Client("postgresql://nowhere"), access=OpenAccess())
    found = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Operation) and "requestBody" not in route.takes and not route.is_read
        for method in route.methods or ()
    }
    return [row for row in MATRIX if (row.method, row.path) in found]


@pytest.mark.parametrize("row", without_body(), ids=lambda row: f"{row.method} {row.path}{row.query}")
async def test_a_body_that_is_not_read_is_refused(world: World, row: Row) -> None:
    """Whoever sends one means something by it, which would be overlooked."""
    answer = await world.ask(row.method, _at(row), *row.scopes, json={"limit": 2})
    assert (answer.status_code, answer.json()["field"]) == (400, "body")


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: f"{row.method} {row.path}{row.query}")
async def test_a_route_needs_its_scopes_and_no_other_will_do(world: World, row: Row) -> None:
    """All others together are refused by the name of the one that is missing; elsewhere so are all."""
    if row.scopes == PUBLIC:
        assert (await world.ask_as_nobody(row.method, _at(row))).status_code == 200
        return
    assert (await world.ask_as_nobody(row.method, _at(row))).status_code == 401
    for missing in row.scopes:
        others = [scope for scope in Scope if scope != missing]
        refused = await world.ask(row.method, _at(row), *others)
        assert (refused.status_code, refused.json()["scope"]) == (403, missing)
    if "{namespace}" in row.path:
        elsewhere = await world.ask(row.method, _at(row, "billing"), "all")
        assert (elsewhere.status_code, elsewhere.json()["namespace"]) == (403, "billing")
    allowed = await world.ask(row.method, _at(row), *row.scopes)
    assert allowed.status_code not in (401, 403)


async def listed(world: World, query: str = "", **rights: Any) -> list[str]:
    """What a search finds, page by page."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await world.ask("GET", f"/v1/processes?limit=1{query}{cursor}", "processes:read", **rights)
        assert page.status_code == 200, page.text
        body = page.json()
        found += [f"{each['namespace']}/{each['process_id']}" for each in body["processes"]]
        if body["cursor"] is None:
            return found
        cursor = f"&cursor={body['cursor']}"


async def test_a_search_shows_what_its_caller_sees(world: World) -> None:
    """Whatever is searched for, page by page."""
    shops = ["shop.a/p1", "shop.a/p4", "shop.b/p2", "shop.b/p5"]
    assert await listed(world) == shops
    assert await listed(world, "&timer=none") == shops
    assert await listed(world, "&status=running") == shops
    assert await listed(world, "&timer=overdue") == []
    assert await listed(world, "&namespace=shop.b") == shops[2:]
    assert await listed(world, namespaces=("*",)) == ["billing/p0", "billing/p3", *shops]
    assert await listed(world, namespaces=("nothing*",)) == []
    assert await listed(world, namespaces=("shop.b", "billing")) == ["billing/p0", "billing/p3", *shops[2:]]
    hidden = await world.ask("GET", "/v1/processes?namespace=billing", "processes:read")
    assert (hidden.status_code, hidden.json()["namespace"]) == (403, "billing")


async def test_health_names_what_its_caller_sees(world: World) -> None:
    """Namespaces that are hidden are hidden there too, and so are those of them that are paused."""
    shops = ["shop.a", "shop.b"]
    for name in ("billing", "shop.b"):
        await world.client.pause(name)
    health = (await world.ask("GET", "/health", "admin")).json()
    assert (health["namespaces"], health["paused"]) == (shops, ["shop.b"])
    listed = (await world.ask("GET", "/v1/namespaces", "processes:read")).json()["namespaces"]
    assert [each["name"] for each in listed] == shops
    (worker,) = (await world.ask("GET", "/v1/workers", "admin")).json()["workers"]
    assert (sorted(worker["namespaces"]), sorted(worker["free_slots"])) == (shops, shops)


async def test_status_and_errors_show_what_their_caller_sees(world: World) -> None:
    """Of the namespaces that are hidden nothing is said, and none of them can be asked for."""
    for name in ("billing", "shop.b"):
        with pytest.raises(HandlerFailed):
            await world.client.call(name, "p0" if name == "billing" else "p2", "fail")
    found = (await world.ask("GET", "/v1/status", "processes:read")).json()["namespaces"]
    assert [(each["name"], each["broken"]) for each in found] == [("shop.a", 0), ("shop.b", 1)]
    reads = ("errors:read", "processes:read")
    groups = (await world.ask("GET", "/v1/errors", *reads)).json()["groups"]
    assert [(each["namespace"], each["message"]) for each in groups] == [("shop.b", "KeyError: '…'")]
    everything = (await world.ask("GET", "/v1/errors", *reads, namespaces=("*",))).json()["groups"]
    assert {each["namespace"] for each in everything} == {"billing", "shop.b"}
    for path, scopes in (("/v1/status", reads[1:]), ("/v1/errors", reads)):
        hidden = await world.ask("GET", f"{path}?namespace=billing", *scopes)
        assert (hidden.status_code, hidden.json()["namespace"]) == (403, "billing")
        # Whether there is one is not said either.
        unknown = await world.ask("GET", f"{path}?namespace=nowhere", *scopes)
        assert unknown.status_code == 403


@pytest.mark.parametrize("call", ["set_timer", "unset_timer", "fire_timer"])
@pytest.mark.parametrize("route", ["calls", "notices"])
async def test_a_timer_is_not_changed_by_a_call(world: World, route: str, call: str) -> None:
    """The calls that every namespace has need the scope of timers, at the address of timers."""
    path = f"/v1/namespaces/shop.a/processes/p1/{route}/"
    for name in (f"progressor:{call}", f"progressor%3A{call}", segment_of(f"progressor:{call}")):
        refused = await world.ask("POST", path + name, "all")
        assert (refused.status_code, refused.json()["field"]) == (400, "name")
    assert len(await world.client.trace("shop.a", "p1")) == 1


async def test_a_search_of_some_namespaces_in_python(world: World) -> None:
    """The same of a client, by patterns."""
    page = await world.client.search(namespaces=["shop.*"])
    assert [each.process_id for each in page.items] == ["p1", "p4", "p2", "p5"]
    assert (await world.client.search(namespaces=["nothing"])).items == []


async def test_a_bulk_is_of_a_namespace_that_its_caller_sees(world: World) -> None:
    """One of another namespace is not made, not listed, not found, and not stopped."""
    made = await world.client.repair_all("billing", simple=True)
    for method, path in (("GET", ""), ("POST", "/stop")):
        hidden = await world.ask(method, f"/v1/bulk/{made.bulk_id}{path}", "bulk")
        assert hidden.status_code == 404
        seen = await world.ask(method, f"/v1/bulk/{made.bulk_id}{path}", "bulk", namespaces=("billing",))
        assert (seen.status_code, seen.json()["bulk_id"]) == (200, made.bulk_id)
    assert (await world.ask("GET", "/v1/bulk", "bulk")).json() == {"bulks": []}
    body = {"namespace": "billing", "simple": True}
    refused = await world.ask("POST", "/v1/bulk", "bulk", json=body)
    assert (refused.status_code, refused.json()["namespace"]) == (403, "billing")
    assert (
        await world.ask("POST", "/v1/bulk", "bulk", namespaces=("billing",), json=body)
    ).status_code == 202


async def test_hidden_bulks_take_no_place_in_a_list(world: World) -> None:
    """The limit counts what the caller sees, however much there is of others that is newer."""
    wanted = await world.client.repair_all("shop.a", simple=True)
    for _ in range(3):
        await world.client.repair_all("billing", simple=True)
    listed = (await world.ask("GET", "/v1/bulk?limit=1", "bulk")).json()["bulks"]
    assert [each["bulk_id"] for each in listed] == [wanted.bulk_id]
    other = await world.ask("GET", "/v1/bulk?limit=1", "bulk", namespaces=("shop_a", "shop.b"))
    assert other.json() == {"bulks": []}


async def broken(world: World) -> None:
    for name in ("p1", "p4"):
        with pytest.raises(HandlerFailed):
            await world.client.call("shop.a", name, "fail")


async def test_a_bulk_that_redoes_needs_the_scope_to_call(world: World) -> None:
    """It runs calls again, as a redo does."""
    await broken(world)
    body = {"namespace": "shop.a", "simple": True, "redo": True}
    refused = await world.ask("POST", "/v1/bulk", "bulk", json=body)
    assert (refused.status_code, refused.json()["scope"]) == (403, "processes:call")
    allowed = await world.ask("POST", "/v1/bulk", "bulk", "processes:call", json=body)
    assert (allowed.status_code, allowed.json()["redo"]) == (202, True)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_filter_on_failures_needs_the_scope_that_shows_them(world: World, dry_run: bool) -> None:
    """Else whoever may repair could find a message out letter by letter."""
    await broken(world)
    body = {"namespace": "shop.a", "simple": True, "detail_like": "%h%", "dry_run": dry_run}
    refused = await world.ask("POST", "/v1/bulk", "bulk", "processes:read", json=body)
    assert (refused.status_code, refused.json()["scope"]) == (403, "errors:read")
    allowed = await world.ask("POST", "/v1/bulk", "bulk", "errors:read", json=body)
    assert allowed.status_code == (200 if dry_run else 202)
    if not dry_run:
        url = allowed.headers["Location"]
        assert (await world.ask("GET", url, "bulk")).json()["detail_like"] is None
        assert (await world.ask("GET", url, "bulk", "errors:read")).json()["detail_like"] == "%h%"


async def test_a_preview_shows_what_its_caller_may_read(world: World) -> None:
    """Messages with errors:read, ids of processes with processes:read; else how many of each handler."""
    await broken(world)
    await world.client.put("shop.a", "p7", status="error")
    body = {"namespace": "shop.a", "dry_run": True}

    async def groups(*scopes: str) -> list[tuple[str, int, list[str]]]:
        found = (await world.ask("POST", "/v1/bulk", "bulk", *scopes, json=body)).json()["groups"]
        return [(each["detail"], each["processes"], sorted(each["examples"])) for each in found]

    assert [count for _, count, _ in await groups()] == [2, 1]
    assert {detail for detail, _, _ in await groups()} == {""}
    assert not any(examples for _, _, examples in await groups("errors:read"))
    assert all(detail for detail, _, _ in await groups("errors:read"))
    assert ["p1", "p4"] in [examples for _, _, examples in await groups("processes:read")]


async def test_workers_and_metrics_show_what_their_caller_sees(world: World) -> None:
    """Not that a worker serves others, nor how much is done there."""
    for name in ("billing", "shop.a"):
        await world.client.call(name, "p0" if name == "billing" else "p1", "ask")
    assert (await world.ask("GET", "/v1/workers", "admin", namespaces=("nothing",))).json() == {
        "workers": []
    }
    seen = (await world.ask("GET", "/metrics", "admin")).text
    assert 'prg_namespace="shop.a"' in seen
    assert "billing" not in seen
    assert "progressor_http_request_ms" in seen
    assert "billing" in (await world.ask("GET", "/metrics", "admin", namespaces=("*",))).text


async def test_a_misspelt_namespace_is_answered_with_those_that_its_caller_sees(world: World) -> None:
    """No name of another one, however like it is."""

    async def similar(*namespaces: str) -> list[str]:
        answer = await world.ask("GET", "/v1/namespaces/shop.x", "processes:read", namespaces=namespaces)
        assert answer.status_code == 404
        found = answer.json()
        assert ("did you mean" in found["detail"]) == bool(found["similar"])
        assert all(each in found["detail"] for each in found["similar"])
        return list(found["similar"])

    assert await similar("shop.x", "shop.a") == ["shop.a"]
    assert await similar("shop.x") == []
    assert sorted(await similar("*")) == ["shop.a", "shop.b"]


async def test_the_answer_of_a_dry_run_is_for_those_who_may_read_the_state(world: World) -> None:
    """Its task has a state, events and messages; that of a repair has the handler's answer alone."""
    await broken(world)
    process = "/v1/namespaces/shop.a/processes/p1"
    for query, status in (("?dry_run=true", 403), ("", 200)):
        receipt = await world.client.trace("shop.a", "p1")
        done = await world.ask("POST", f"{process}/repairs{query}", "processes:repair", "state:read")
        assert done.status_code == 200
        task_id = max(each.task_id for each in await world.client.trace("shop.a", "p1"))
        assert task_id > receipt[-1].task_id
        task = f"{process}/tasks/{task_id}"
        asked = await world.ask("GET", task, "processes:read")
        assert asked.status_code == status
        assert (await world.ask("GET", task, "processes:read", "state:read")).status_code == 200


async def test_an_import_sends_nothing_to_where_its_caller_may_not_import(world: World) -> None:
    """A message that waits would be delivered to a namespace that is hidden, or as what is not granted."""
    whole = made_whole("sender", namespace="shop.a", due=datetime(2030, 1, 1, tzinfo=UTC))
    message = MessageRecord(
        namespace="shop.a",
        process_id="sender",
        task_id=2,
        n=0,
        created_at=whole.process.created_at,
        due=whole.process.created_at,
        attempts=0,
        task_type="notify",
        to_namespace="billing",
        to_process_id="p0",
        name="ask",
        idempotency_key="k",
        request_hash=b"hash",
    )
    lines = b"".join(map(write_line, whole._replace(messages=[message]).records()))
    path, scopes = "/v1/namespaces/shop.a/import", ("admin", "processes:put")
    refused = await world.ask("POST", path, *scopes, lines=lines)
    assert (refused.status_code, refused.json()["namespace"]) == (403, "billing")
    with pytest.raises(ProcessNotFound):
        await world.client.get("shop.a", "sender")
    sees = ("shop.*", "billing")
    done = await world.ask("POST", path, *scopes, namespaces=sees, lines=lines)
    assert done.json() == {"outcomes": ["imported"]}
