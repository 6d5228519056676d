"""The session of the page about HTTP runs as it stands."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from progressor import Client
from progressor.http.server.app import make_app
from progressor.http.server.serve import ApiServer
from tests.docs.pages import ROOT, blocks
from tests.docs.test_code import _execute_all, _served
from tests.open_access import OpenAccess

_PAGE = ROOT / "docs/how-to/http.md"


@contextmanager
def _api(dsn: str) -> Iterator[str]:
    """Where the API is served, by a thread of its own."""
    loop, ended, started, urls = asyncio.new_event_loop(), asyncio.Event(), threading.Event(), list[str]()

    async def serve() -> None:
        client = Client(dsn)
        app = make_app(client, access=OpenAccess())
        async with ApiServer(client, app, host="127.0.0.1", port=0) as serving:
            urls.append(serving.url)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(20)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
        loop.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks with curl")
def test_the_session_does_what_it_says(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command prints the lines below it, and the program of the page works."""
    module = _execute_all([block for block in blocks(_PAGE, "python") if block.runs], dsn)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with _served(module, dsn), _api(dsn) as url:
        for block in blocks(_PAGE, "console"):
            for part in block.code.removeprefix("$ ").split("\n$ "):
                command, _, wanted = part.partition("\n")
                command = command.replace("localhost:8080", url.removeprefix("http://"))
                ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
                assert ran.stdout.strip() == wanted.strip(), command
        assert asyncio.run(module.settle(url)) == 100
