"""The code of the pages runs as it stands, and prints what the pages say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from progressor import Client, Engine, Namespace, Page, SyncClient
from progressor.cli.main import app
from progressor.testing import MakeWorld, World
from tests.conftest import Databases
from tests.docs.pages import ROOT, Block, blocks, name_of, pages, read

_URL = re.compile(r"postgresql://[^\"'\s]+")
_PRINTS = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
_WITH_CODE = [page for page in pages() if any(block.runs for block in blocks(page, "python"))]
# Pages that show a program, which runs as a script of its own, below.
_EXAMPLES = {"README.md": "examples/subscription.py", "docs/example.md": "examples/billing.py"}


@pytest.mark.parametrize(
    "page", [page for page in _WITH_CODE if name_of(page) not in _EXAMPLES], ids=name_of
)
async def test_the_page_runs(
    page: Path,
    dsn: str,
    fresh_dsn: Callable[[], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All blocks of a page run in their order, in one module; then its tests, each in a world of its own.

    What they print stands behind the prints as comments, or below the code as a block of text.
    """
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    listed = [block for block in blocks(page, "python") if block.runs]
    with ExitStack() as stack:
        for block in listed:
            await _execute(block, module, dsn)
            if block.note == "served":
                stack.enter_context(_served(module, dsn))
    for test in _tests_of(module):
        await test(partial(World, fresh_dsn()))
    said = [line for block in listed for line in _PRINTS.findall(block.code)]
    said += [line for block in blocks(page, "text") for line in block.code.splitlines()]
    assert capsys.readouterr().out.splitlines() == said


@pytest.fixture
def fresh_dsn(databases: Databases, template: str) -> Iterator[Callable[[], str]]:
    """A function that makes a fresh database with all tables."""
    made: list[str] = []

    def make() -> str:
        made.append(databases.make(template))
        return databases.dsn(made[-1])

    yield make
    for name in made:
        databases.drop(name)


def _tests_of(module: ModuleType) -> list[Callable[[MakeWorld], Awaitable[None]]]:
    """The tests that a page defines with the fixture of the kit alone."""
    return [
        value
        for name, value in vars(module).items()
        if name.startswith("test_") and inspect.iscoroutinefunction(value)
        if list(inspect.signature(value).parameters) == ["progressor_world"]
    ]


def test_the_tests_of_a_page_are_found() -> None:
    """Those that run in a world, and no others."""
    module = ModuleType("page")
    exec(
        "async def test_it(progressor_world): pass\nasync def run(progressor_world): pass\n"
        "async def test_other(dsn): pass\ndef test_sync(progressor_world): pass",
        vars(module),
    )
    assert _tests_of(module) == [module.test_it]


def _execute_all(listed: list[Block], dsn: str) -> ModuleType:
    """The blocks of a page in a module of their own."""
    module = ModuleType("page")
    sys.modules["page"] = module
    for block in listed:
        asyncio.run(_execute(block, module, dsn))
    return module


async def _execute(block: Block, module: ModuleType, dsn: str) -> None:
    # Blank lines, so that a traceback names the line of the page.
    text = "\n" * (block.line - 1) + _URL.sub(dsn, block.code)
    code = compile(text, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, vars(module))
    if inspect.isawaitable(result):
        await result


@contextmanager
def _served(module: ModuleType, dsn: str) -> Iterator[None]:
    """An engine in a thread of its own, because pages with SyncClient block theirs."""
    namespaces = [value for value in vars(module).values() if isinstance(value, Namespace)]
    started = threading.Event()
    stop: list[Any] = []

    async def serve() -> None:
        stopped = asyncio.Event()
        stop.extend((asyncio.get_running_loop(), stopped))
        async with Engine(dsn, namespaces):
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(20)
        yield
    finally:
        loop, stopped = stop
        loop.call_soon_threadsafe(stopped.set)
        thread.join(20)


@pytest.mark.parametrize("page", _EXAMPLES)
def test_the_page_shows_the_examples_file(page: str) -> None:
    """All of it, and nothing else."""
    (shown,) = [block for block in blocks(ROOT / page, "python") if block.runs]
    assert shown.note == _EXAMPLES[page]
    assert shown.code == read(_EXAMPLES[page])


@pytest.mark.parametrize("page", _EXAMPLES)
def test_the_example_runs_as_it_stands(page: str, dsn: str, tmp_path: Path) -> None:
    """Saved to a file and run as a script, it prints what the page says, and no more."""
    (example,) = [block for block in blocks(ROOT / page, "python") if block.runs]
    script = tmp_path / Path(_EXAMPLES[page]).name
    script.write_text(example.code, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert ran.stdout in [block.code for block in blocks(ROOT / page, "text")]
    assert ran.stderr == ""


async def test_an_asgi_application_without_a_lifespan_gets_an_engine(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page puts around Django's application runs an engine while the server serves."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    page = ROOT / "docs/how-to/engine-in-your-web-app.md"
    for block in blocks(page, "python"):
        if block.runs and "ASGITransport" not in block.code and "EngineThread" not in block.code:
            await _execute(block, module, dsn)

    async def view(_scope: object, _receive: object, send: Callable[[Any], Awaitable[None]]) -> None:
        await wrapped.engine.client.start("shop.cart", "eve")
        await send(await wrapped.engine.client.call("shop.cart", "eve", "add", 4))

    wrapped = module.WithEngine(view, Engine(dsn, module.app))
    asked, told = asyncio.Queue[Any](), asyncio.Queue[Any]()
    async with asyncio.TaskGroup() as server:
        server.create_task(wrapped({"type": "lifespan"}, asked.get, told.put))
        asked.put_nowait({"type": "lifespan.startup"})
        assert await told.get() == {"type": "lifespan.startup.complete"}
        await wrapped({"type": "http"}, asked.get, told.put)
        assert await told.get() == 4
        asked.put_nowait({"type": "lifespan.shutdown"})
        assert await told.get() == {"type": "lifespan.shutdown.complete"}


def test_the_commands_of_the_night(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page succeeds in its order; in the end what it is about is repaired, no more."""
    page = ROOT / "docs/how-to/repair-at-three.md"
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    served, broken = blocks(page, "python")
    module = _execute_all([served], dsn)
    with _served(module, dsn):
        asyncio.run(_execute(broken, module, dsn))
        for block in blocks(page, "sh"):
            for line in block.code.splitlines():
                result = CliRunner().invoke(app, shlex.split(line)[1:])
                assert result.exit_code == 0, (line, result.output)
    with SyncClient(dsn) as client:
        found = client.search(namespace="billing.subscription")
        bulk = client.bulk(1)
    by_status = {process.process_id: str(process.status) for process in found.items}
    assert by_status == {"acme": "running", "initech": "running", "hooli": "error"}
    assert (str(bulk.status), bulk.repaired, bulk.begun) == ("finished", 2, 2)


def test_the_commands_of_a_rotation(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of each phase of the page reads what the one before wrote; then the old key goes."""
    page = ROOT / "docs/how-to/rotate-keys.md"
    (program,) = blocks(page, "python")
    (tmp_path / "vault.py").write_text(program.code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    k1, k2 = (f"k{number}:{b64encode(bytes([number] * 32)).decode()}" for number in (1, 2))

    def deployed(keys: str) -> ModuleType:
        sys.modules.pop("vault", None)
        monkeypatch.setenv("PROGRESSOR_KEYS", keys)
        return import_module("vault")

    async def served(module: ModuleType) -> int:
        async with Engine(dsn, [module.accounts]) as engine:
            await engine.client.start("bank.account", "acme", 1, idempotency_key="once")
            return await engine.client.call("bank.account", "acme", "pay", 1)

    phases = [f"plain,{k1}", k1, f"{k1},{k2}", f"{k2},{k1}"]
    assert [asyncio.run(served(deployed(keys))) for keys in phases] == [2, 3, 4, 5]
    lines = [line for block in blocks(page, "sh") for line in block.code.splitlines()]
    outputs = []
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)
        outputs.append([each.split()[:2] for each in result.stdout.splitlines()])
    looked, written, again = outputs
    assert looked == written[:-1] == [["found", "k1"], ["found", "k2"], ["found", "plain"]]
    assert again == [["found", "k2"], ["written", "0"]]
    assert asyncio.run(served(deployed(k2))) == 6


def test_what_is_not_run_says_why() -> None:
    """Each block that is left out names its reason, and nothing is misspelled."""
    for page in pages():
        for block in blocks(page, "python"):
            assert block.note in ("", "served", *_EXAMPLES.values()) or not block.runs, name_of(page)


async def test_many_are_repaired_while_somebody_else_repairs(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says to run over all broken processes goes on past one that another repaired."""
    page = ROOT / "docs/how-to/errors-and-repair.md"
    listed = [block for block in blocks(page, "python") if block.runs]
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    await _execute(listed[0], module, dsn)
    search = Client.search

    async def search_late(client: Client, **wanted: Any) -> Page:
        """Between looking and repairing, somebody repairs one process and removes another."""
        found = await search(client, **wanted)
        if found.items:
            await client.simple_repair("shop.order", "repaired")
            await client.remove("shop.order", "removed")
        return found

    async with Engine(dsn, [module.orders]) as engine:
        for name in ("repaired", "removed", "left"):
            await engine.client.put("shop.order", name, state={}, status="error")
        monkeypatch.setattr(Client, "search", search_late)
        await _execute(listed[-1], module, dsn)
        assert (await engine.client.get("shop.order", "left")).status == "running"
