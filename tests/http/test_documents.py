"""The OpenAPI documents hold: they are valid, the API keeps to them, and clients are made of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from progressor import Client, Engine
from progressor.http.access import OpenAccess
from progressor.http.app import make_app
from progressor.http.options import HttpOptions
from progressor.http.serving import Serving
from tests.http import shop

OWN = "/v1/namespaces/shop.order/openapi.json"


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


@pytest.fixture
def url(dsn: str) -> Iterator[str]:
    """Where an API of the shop is served, by a thread of its own."""
    with served(dsn) as url:
        yield url


@contextmanager
def served(dsn: str) -> Iterator[str]:
    started, ended = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(Engine(dsn, [shop.make(), shop.raw(), shop.till()]))
            client = Client(dsn)
            # Somebody may have paused the namespace that is asked.
            app = make_app(client, access=OpenAccess(), options=HttpOptions(wait=2.0, longest_wait=2.0))
            serving = await stack.enter_async_context(Serving(client, app, host="127.0.0.1", port=0))
            found.extend((asyncio.get_running_loop(), serving.url))
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


def test_a_generated_client_starts_calls_and_repairs(url: str, tmp_path: Path) -> None:
    """Made by openapi-python-client of the namespace's own document."""
    (tmp_path / "document.json").write_text(httpx.get(url + OWN).text)
    program = Path(sys.executable).with_name("openapi-python-client")
    command = [program, "generate", "--path", "document.json", "--meta", "none", "--output-path", "made"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stdout + ran.stderr
    script = tmp_path / "ask.py"
    script.write_text(_ASK)
    asked = subprocess.run(
        [sys.executable, script, url], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == ["2 x tea", "12.50", "mended", "running", "12.50"]


_ASK = """
import json, sys
from made import Client
from made.api.default import call_break, call_pay, get, repair, start
from made.models import PayArgs, RepairArgsPay, StartArgs

client = Client(base_url=sys.argv[1])
said = [start.sync("o1", client=client, body=StartArgs(item="tea", count=2))]
said.append(call_pay.sync("o1", client=client, body=PayArgs(amount="12.50")))
call_break.sync("o1", client=client)
said.append(repair.sync("o1", client=client, body=RepairArgsPay(amount=1)))
process = get.sync("o1", client=client)
said += [process.status, process.state.paid]
print(json.dumps(said))
"""


# The checks that hold an API to its document. The others guess what else it should refuse.
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
)


@pytest.mark.parametrize("document", ["/openapi.json", "/v1/namespaces/shop.till/openapi.json"])
def test_the_api_keeps_to_its_document(url: str, tmp_path: Path, document: str) -> None:
    """Whatever is asked: no defect, no status that is not documented, no body of another shape."""
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("st"),
            *("run", url + document, "--max-time", "20", "--seed", "1", "--warnings", "off"),
            *("--checks", ",".join(_CHECKS), "--phases", "examples,coverage,fuzzing,stateful"),
            *("--generation-database", "none", "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
