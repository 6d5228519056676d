"""The child's end of the link to its supervisor."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import suppress

import pytest

from progressor.deployment.link import UNASKED, Link, News


def _fill(full: socket.socket) -> None:
    full.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            full.send(b"\n" * 1024)
    full.setblocking(True)


def test_a_supervisor_that_reads_nothing_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """News wait in threads of their own until it reads, and the steps go on."""
    ended = threading.Event()
    monkeypatch.setattr(Link, "_end", lambda _: ended.set())
    ours, theirs = socket.socketpair()
    _fill(theirs)
    link = Link(1, theirs.detach())

    async def tell() -> None:
        link.watch(pytest.fail)
        link.spent()

    telling = threading.Thread(target=asyncio.run, args=[tell()], daemon=True)
    with ours:
        ours.settimeout(30)
        telling.start()
        telling.join(10)
        assert not telling.is_alive()
        with ours.makefile() as lines:
            told = (json.loads(line) for line in lines if line.strip())
            assert sorted([next(told), next(told)]) == [[UNASKED, News.SERVES], [UNASKED, News.SPENT]]
    assert ended.wait(30)
    link._lines.close()
    link._socket.close()
