"""The OpenAPI documents hold: they are valid, the API keeps to them, and clients are made of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from openapi_spec_validator import validate

from progressor import Client, Engine
from progressor.client.bulk_repairs import LEAST_RATE, MOST_RATE
from progressor.config import MOST_OF_A_GROUP
from progressor.http.server.app import make_app
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.openapi.operations import HEADERS
from progressor.http.server.options import HttpOptions
from progressor.http.server.serve import ApiServer
from progressor.inputs import LAST_ID, MAX_ID_LENGTH, NAMESPACE_PATTERN
from progressor.storage import MOST_ITEMS
from tests.http import shop

OWN = "/v1/namespaces/shop.order/openapi.json"
OWN_TILL = "/v1/namespaces/shop.till/openapi.json"


async def test_the_documents_are_valid(api: httpx.AsyncClient) -> None:
    """OpenAPI 3.1, of all processes and of one namespace."""
    for url in ("/openapi.json", OWN):
        document = (await api.get(url)).json()
        assert document["openapi"].startswith("3.1")
        validate(document)


async def test_a_namespace_is_typed_by_its_schemas(api: httpx.AsyncClient) -> None:
    """A route for each call, with its arguments and its answer."""
    document = (await api.get(OWN)).json()
    pay = document["paths"]["/v1/namespaces/shop.order/processes/{process_id}/calls/pay"]["post"]
    assert pay["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/PayArgs")
    assert document["components"]["schemas"]["PayArgs"]["required"] == ["amount"]
    assert pay["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/PayAnswer")
    state = document["components"]["schemas"]["ProcessBody"]["properties"]["state"]
    assert {"$ref": "#/components/schemas/State"} in state["anyOf"]
    assert not any("{namespace}" in path for path in document["paths"])


async def test_what_waits_says_how_long(api: httpx.AsyncClient) -> None:
    """Whoever reads a process or its events may prefer how long it waits."""
    document = (await api.get("/openapi.json")).json()
    process = "/v1/namespaces/{namespace}/processes/{process_id}"
    for path in (process, f"{process}/events"):
        named = [each["name"] for each in document["paths"][path]["get"]["parameters"]]
        assert named.count("Prefer") == 1


class Served(NamedTuple):
    """An API that a thread of its own serves, and a token with which it may be asked for everything."""

    url: str
    token: str


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_operation_names_the_scope_of_its_route(api: httpx.AsyncClient) -> None:
    """As what a bearer's token must have; and so does each in the document of a namespace."""
    document = (await api.get("/openapi.json")).json()
    app = api._transport.app  # type: ignore[attr-defined] # of httpx, which names no public way
    scopes = {(each.path, method.lower()): each.scope for each in app.routes for method in each.methods}
    named = {(path, method): each["security"] for path, method, each in operations(document)}
    assert named == {key: [{"bearer": [scopes[key]]}] for key in named}
    own = (await api.get(OWN)).json()
    assert all(each["security"] for _, _, each in operations(own))
    for each in (document, own):
        assert each["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


async def test_patterns_and_bounds_are_those_of_the_code(api: httpx.AsyncClient) -> None:
    """A generated client sees what would be refused."""
    document = (await api.get("/openapi.json")).json()
    longest = {"minLength": 1, "maxLength": MAX_ID_LENGTH}
    seen: dict[str, list[dict[str, Any]]] = {}
    for _, _, operation in operations(document):
        for each in operation.get("parameters", ()):
            seen.setdefault(each["name"], []).append(each["schema"])
    for name in ("namespace", "process_id", "name"):
        for schema in seen[name]:
            assert longest.items() <= schema.items()
    assert {schema["pattern"] for schema in seen["namespace"]} == {NAMESPACE_PATTERN}
    for process_id, is_one in (("a b", True), ("ü/ö", True), ("~x", False), ("..", False), ("a\0", False)):
        assert bool(re.search(seen["process_id"][0]["pattern"], process_id)) is is_one
    assert re.search(seen["name"][0]["pattern"], "pay")
    assert not re.search(seen["name"][0]["pattern"], "progressor:set_timer")
    # Of a page, and of a group.
    bounds = {(1, MOST_ITEMS), (0, MOST_OF_A_GROUP)}
    assert {(schema["minimum"], schema["maximum"]) for schema in seen["limit"]} == bounds
    assert {(schema["minimum"], schema["maximum"]) for schema in seen["task_id"]} == {(1, LAST_ID)}
    bulk = _body(document, "/v1/bulk", "post")["properties"]
    assert (bulk["rate"]["minimum"], bulk["rate"]["maximum"]) == (LEAST_RATE, MOST_RATE)


def _body(document: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]["requestBody"]["content"]["application/json"]
    return found["schema"]  # type: ignore[no-any-return] # of JSON


async def test_a_namespace_has_timers_and_imports_of_its_type(api: httpx.AsyncClient) -> None:
    """What concerns a process is there, and no schema that nothing refers to."""
    own = (await api.get(OWN)).json()
    named = {operation["operationId"] for _, _, operation in operations(own)}
    assert {"set_timer", "unset_timer", "fire_timer", "put", "remove", "get"} <= named
    process = "/v1/namespaces/shop.order/processes/{process_id}"
    imported = _body(own, process, "put")["properties"]
    assert {"$ref": "#/components/schemas/State"} in imported["state"]["anyOf"]
    assert "state_base64" not in imported
    assert own["paths"][process]["post"]["requestBody"]["required"]
    assert not own["paths"][f"{process}/calls/echo"]["post"]["requestBody"]["required"]
    text = json.dumps(own)
    for name in own["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text


async def test_the_headers_of_answers_are_documented(api: httpx.AsyncClient) -> None:
    """Each that an answer has, under its status."""
    document = (await api.get("/openapi.json")).json()
    process = "/v1/namespaces/{namespace}/processes/{process_id}"
    url = "/v1/namespaces/shop.order/processes/o1"
    key = {"Idempotency-Key": "k"}
    asked = [
        (await api.post(url, json={"item": "tea"}, headers=key), process, "post"),
        (await api.post(url, json={"item": "tea"}, headers=key), process, "post"),
        (await api.post(url, json={"item": "tea"}), process, "post"),
        (await api.post(url, content=b"x", headers={"Content-Type": "text/plain"}), process, "post"),
        (await api.get(url, headers={"Prefer": "wait=1"}), process, "get"),
        (await api.get(url, headers={"If-None-Match": "*"}), process, "get"),
        (
            await api.post(f"{url}/calls/echo", headers={"Prefer": "respond-async"}),
            process + "/calls/{name}",
            "post",
        ),
        (await api.post(f"{url}/calls/refuse"), process + "/calls/{name}", "post"),
    ]
    for answer, path, method in asked:
        response = document["paths"][path][method]["responses"][str(answer.status_code)]
        undocumented = {*answer.headers} - {"content-type", "content-length"}
        undocumented -= {name.lower() for name in response["headers"]}
        assert not undocumented, (answer.status_code, undocumented)
    assert {*HEADERS} == {*document["components"]["headers"]}
    assert "WWW-Authenticate" in document["paths"][process]["get"]["responses"]["401"]["headers"]


@pytest.fixture
def api_of_shop(dsn: str) -> Iterator[Served]:
    """Where an API of the shop is served, by a thread of its own."""
    with served(dsn) as found:
        yield found


@contextmanager
def served(dsn: str) -> Iterator[Served]:
    started, ended = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            engine = Engine(dsn, [shop.make(), shop.raw(), shop.till()])
            await stack.enter_async_context(engine)
            _, bearer = await engine.client.tokens.create(
                "test", scopes=["all"], namespaces=["*"], lifetime=None
            )
            client = Client(dsn)
            # Somebody may have paused the namespace that is asked.
            options = HttpOptions(wait=2.0, longest_wait=2.0)
            app = make_app(client, access=Authenticator(client.tokens, AccessOptions()), options=options)
            serving = await stack.enter_async_context(ApiServer(client, app, host="127.0.0.1", port=0))
            found.extend((asyncio.get_running_loop(), Served(serving.url, bearer.text)))
            started.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        yield found[1]
    finally:
        found[0].call_soon_threadsafe(ended.set)
        thread.join(30)


def test_a_generated_client_starts_calls_repairs_and_sets_timers(
    api_of_shop: Served, tmp_path: Path
) -> None:
    """Made by openapi-python-client of the namespace's own document."""
    url, token = api_of_shop
    shown = {"Authorization": f"Bearer {token}"}
    (tmp_path / "document.json").write_text(httpx.get(url + OWN, headers=shown, timeout=60).text)
    program = Path(sys.executable).with_name("openapi-python-client")
    command = [program, "generate", "--path", "document.json", "--meta", "none", "--output-path", "made"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stdout + ran.stderr
    script = tmp_path / "ask.py"
    script.write_text(_ASK)
    asked = subprocess.run(
        [sys.executable, script, url, token], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == [
        "2 x tea",
        "12.50",
        None,
        "timeout",
        "mended",
        "running",
        "12.50",
    ]


_ASK = """
import json, sys
from made import AuthenticatedClient
from made.api.default import call_break, call_pay, get, repair, set_timer, start
from made.models import PayArgs, RepairArgsPay, SetTimerNewTimer, StartArgs

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
said = [start.sync("o1", client=client, body=StartArgs(item="tea", count=2))]
said.append(call_pay.sync("o1", client=client, body=PayArgs(amount="12.50")))
said.append(set_timer.sync("o1", "default", client=client, body=SetTimerNewTimer(after=3600)))
said.append(get.sync("o1", client=client).timer.task_type)
call_break.sync("o1", client=client)
said.append(repair.sync("o1", client=client, body=RepairArgsPay(amount=1)))
process = get.sync("o1", client=client)
said += [process.status, process.state.paid]
print(json.dumps(said))
"""


# What is valid and is refused all the same: 412 where If-None-Match wants that nothing is there, 422 where
# a handler refuses, and, where the namespace is any, arguments and media types that this one does not take.
_EXPECTED = [
    """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "401", "403", "404", "409", "412", "415", "422", "5xx"]
""",
    """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "401", "403", "404", "409", "5xx"]

[[operations]]
include-operation-id = ["start", "put"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "412"]

[[operations]]
include-operation-id = ["call_count", "fire_timer", "result"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "422"]
""",
]
# What no schema says: that a text is JSON, a cursor or a position of ours, a time or a duration; that
# parameters exclude each other; that a key is new; how long a duration is; which years there are; that no
# NUL is in an object.
_HOOKS = r"""
import re
from uuid import uuid4

import schemathesis

_VALID = {"metadata": '{"a": 1}', "since": "PT1H", "tasks": "P90D", "keys": "P90D", "events": "10"}
# Which characters cannot be printed.
_VALID["reason"] = "why"
_IN_HEADERS = {
    "Progressor-Metadata": '{"a": 1}',
    "Progressor-Context": '{"a": 1}',
    "Progressor-Reason": "a%20why",
}
_RECURS = {"every", "drift", "catch_up", "within", "jitter", "between"}


def _accepted(value):
    match value:
        case str():
            return re.sub("^(0001|9999)-", "2001-", value.replace("\0", "x"))
        case list():
            return [_accepted(each) for each in value]
        case dict():
            return {_accepted(name): _accepted(each) for name, each in value.items()}
    return value


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return str(value).encode()


@schemathesis.hook
def before_call(context, case, kwargs):
    is_positive = case.meta is not None and case.meta.generation.mode.is_positive
    query = case.query or {}
    if is_positive or re.fullmatch("[A-Za-z0-9_-]{16}", str(query.get("fingerprint"))):
        # A made-up one names a task that a restore lost.
        query.pop("fingerprint", None)
    if not is_positive:
        return
    key = (case.headers or {}).get("Idempotency-Key")
    if key is not None:
        # One that was used for another request is refused.
        end = '"' if key.startswith('"') else ""
        case.headers["Idempotency-Key"] = key[:200].removesuffix(end) + uuid4().hex + end
    query.pop("cursor", None)
    if case.path.endswith("/watch"):
        # A position is one of ours, too.
        query.pop("after", None)
        (case.headers or {}).pop("Last-Event-ID", None)
    if case.path.endswith("/feed"):
        # So is one here; and of the namespaces some have no feed.
        query.pop("namespaces", None)
        if query.get("after") not in ("latest", "beginning"):
            query.pop("after", None)
        (case.headers or {}).pop("Last-Event-ID", None)
    if "last" in query:
        query.pop("limit", None)
    if "tasks" not in query:
        query.pop("keys", None)
    if query.get("simple"):
        query.pop("simple")
    if case.method == "DELETE" and case.path.endswith("/processes") and "metadata" not in query:
        # One of the two is needed.
        case.query = query = {**query, "status": "error"}
    if case.path.endswith("/export") and {"metadata", "status"} & query.keys():
        # One process has no filter.
        query.pop("process_id", None)
    # Not every handler takes one.
    query.pop("dry_run", None)
    if case.path.endswith("/import"):
        # No schema says what a line may be.
        case.body = '{"kind":"head","format":1,"release":"1","made_at":"2026-01-01T00:00:00Z"}'
    body = {}
    if isinstance(case.body, dict):
        body = case.body = _accepted(case.body)
    if case.path.endswith("/bulk") and "namespace" in body:
        # Not every namespace has a repair handler, which alone takes args.
        body["simple"] = True
        body.pop("args", None)
    named = body.get("timers") if isinstance(body.get("timers"), dict) else {}
    if named:
        # Together they may be one too many.
        body.pop("timer", None)
    for timer in (body, body.get("timer"), *named.values()):
        if isinstance(timer, dict) and isinstance(timer.get("after"), str):
            timer["after"] = "PT1H"
        of_timers = "/timers/" in case.path or timer is not body
        if isinstance(timer, dict) and of_timers and _RECURS & timer.keys():
            # How these go together, and which rules have times.
            for name in _RECURS & timer.keys():
                timer.pop(name)
            if timer.get("at") is None:
                timer["after"] = 3600
    for name in _VALID.keys() & query.keys():
        query[name] = _VALID[name]
    for name in _IN_HEADERS.keys() & (case.headers or {}).keys():
        case.headers[name] = _IN_HEADERS[name]
"""


# In sequences of requests what is valid may be refused for what came before, and a timer that was unset is
# set again at the same address.
_OF_SEQUENCES = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,allow_header_conformance,negative_data_rejection,ignored_auth"
)


@pytest.mark.parametrize(
    ("phases", "checks"),
    [("examples,coverage,fuzzing", "all"), ("stateful", _OF_SEQUENCES)],
    ids=["requests", "sequences"],
)
@pytest.mark.parametrize("document", ["/openapi.json", OWN_TILL])
def test_the_api_keeps_to_its_document(
    api_of_shop: Served, tmp_path: Path, document: str, phases: str, checks: str
) -> None:
    """Whatever is asked: nothing undocumented is answered, and what is valid is not refused."""
    (tmp_path / "hooks.py").write_text(_HOOKS)
    (tmp_path / "schemathesis.toml").write_text(_EXPECTED[document == OWN_TILL])
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("st"),
            *(
                "--config-file",
                "schemathesis.toml",
                "run",
                api_of_shop.url + document,
                "--max-time",
                "30",
                "--seed",
                "1",
                "--warnings",
                "off",
            ),
            *("--header", f"Authorization: Bearer {api_of_shop.token}"),
            *("--checks", checks, "--phases", phases),
            *("--generation-database", "none", "--no-color"),
        ],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
