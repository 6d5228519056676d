"""The page about traces does what it says: its session over HTTP, its view, and its program with an SDK."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from progressor import Client, SyncClient
from tests import postgres
from tests.docs.pages import ROOT, blocks
from tests.docs.test_code import _URL, _execute_all, _served
from tests.docs.test_http import _api

_PAGE = ROOT / "docs/how-to/trace-a-call.md"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def commands() -> list[tuple[str, str]]:
    """The commands of the page, and what they print."""
    parts = [
        part for block in blocks(_PAGE, "console") for part in block.code.removeprefix("$ ").split("\n$ ")
    ]
    return [(command, wanted) for command, _, wanted in (part.partition("\n") for part in parts)]


@pytest.fixture
def module(dsn: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The code of the page."""
    module = _execute_all([block for block in blocks(_PAGE, "python") if block.runs], dsn)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks with curl")
def test_the_session_does_what_it_says(dsn: str, module: ModuleType) -> None:
    """Each command prints the lines below it, and the view of the page carries its headers."""
    with _served(module, dsn), _api(dsn) as url:
        for command, wanted in commands():
            if command.startswith("curl"):
                sent = command.replace("localhost:8080", url.removeprefix("http://"))
                ran = subprocess.run(["sh", "-c", sent], capture_output=True, text=True, check=False)
                assert ran.stdout.strip() == wanted.strip(), command

        async def ask() -> None:
            async with Client(dsn) as client:
                await module.view(client, {"traceparent": PARENT})

        asyncio.run(ask())
        with SyncClient(dsn) as client:
            newest = [each for each in client.trace("order", "o-1") if each.name == "pay"][-1]
    assert newest.trace_id == PARENT[3:35]


def test_the_program_prints_its_spans(dsn: str, tmp_path: Path) -> None:
    """As the page shows them."""
    served, *_ = (block for block in blocks(_PAGE, "python") if block.note == "served")
    (script,) = (block for block in blocks(_PAGE, "python") if block.note == "script")
    (tmp_path / "shop.py").write_text(served.code, encoding="utf-8")
    (tmp_path / "spans.py").write_text(_URL.sub(dsn, script.code), encoding="utf-8")
    wanted = dict(commands())["python spans.py"]
    ran = subprocess.run(
        [sys.executable, "spans.py"],
        cwd=tmp_path,
        env=postgres.environment_of_a_run(PYTHONPATH=f"{ROOT}:{tmp_path}"),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert ran.stdout.strip() == wanted.strip()


def test_the_filter_and_the_processor_add_nothing_outside_of_steps(module: ModuleType) -> None:
    """And keep what a line has."""
    assert module.of_step(None, "info", {"event": "mine"}) == {"event": "mine"}
    assert module.handler.filters
