"""Waits for answers, and their ends: an answer, a time-out, a caller who leaves, a server that stops.

Rule: a caller who waits learns in time where to ask again. The end of a wait stops nothing of its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType

from starlette.types import Receive

from progressor.supervision import report, watched

# Seconds until somebody looks whether a caller leaves: most answers come sooner, and cost no task for that.
_SOON = 0.1


class DrainableWaits:
    """The waits of one server, each within a time-out that a stop may shorten."""

    def __init__(self) -> None:
        # Each with the way in which its caller's leaving is told.
        self._scopes: dict[asyncio.Timeout, Receive] = {}
        self._leaving: dict[asyncio.Timeout, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._on_time = watched("leaving", self._look)
        # Those of streams, which no answer ends.
        self._streams: set[asyncio.Timeout] = set()
        self._until: float | None = None
        self._nobody = asyncio.Event()
        self._nobody.set()

    @property
    def is_draining(self) -> bool:
        """Return whether the server stops."""
        return self._until is not None

    @property
    def count(self) -> int:
        """Return how many requests wait for an answer."""
        return len(self._scopes)

    def waiting(self, receive: Receive) -> AbstractAsyncContextManager[object]:
        """Wait within the block for the answer of a request, whose body was read from `receive`.

        Raise TimeoutError once its caller has left, or the server waits no longer.
        """
        return _Waiting(self, receive)

    @asynccontextmanager
    async def streaming(self, receive: Receive) -> AsyncIterator[None]:
        """Send within the block an answer without an end.

        Raise TimeoutError once its caller has left, or the server begins to stop.
        """
        async with _Waiting(self, receive) as scope:
            self._streams.add(scope)
            if self.is_draining:
                _end_now(scope)
            try:
                yield
            finally:
                self._streams.discard(scope)

    def begin(self, receive: Receive) -> asyncio.Timeout:
        """Return the time-out of a wait that begins, until `end`."""
        scope = asyncio.timeout_at(self._until)
        self._scopes[scope] = receive
        self._nobody.clear()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._on_time)
        return scope

    def end(self, scope: asyncio.Timeout) -> None:
        """Forget a wait."""
        del self._scopes[scope]
        leaving = self._leaving.pop(scope, None)
        if leaving is not None:
            leaving.cancel()
        if not self._scopes:
            self._nobody.set()

    def _look(self) -> None:
        """Begin to look whether callers leave: those who wait here, and for whom nobody looks yet."""
        self._timer = None
        for scope in self._scopes.keys() - self._leaving.keys():
            leaving = asyncio.create_task(_until_left(self._scopes[scope], scope))
            leaving.add_done_callback(watched("leaving", _say_failed))
            self._leaving[scope] = leaving

    async def drain(self, seconds: float) -> None:
        """Let no wait last longer than so many seconds from now, and return once nobody waits.

        Streams end at once.
        """
        self._until = asyncio.get_running_loop().time() + seconds
        for scope in self._streams:
            _end_now(scope)
        for scope in list(self._scopes):
            self._shorten(scope)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                await self._nobody.wait()

    def _shorten(self, scope: asyncio.Timeout) -> None:
        when = scope.when()
        if self._until is not None and (when is None or when > self._until) and not scope.expired():
            scope.reschedule(self._until)


class _Waiting:
    """The block of one wait."""

    __slots__ = ("_receive", "_scope", "_waits")

    def __init__(self, waits: DrainableWaits, receive: Receive) -> None:
        self._waits = waits
        self._receive = receive

    async def __aenter__(self) -> asyncio.Timeout:
        self._scope = self._waits.begin(self._receive)
        return await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waits.end(self._scope)
        await self._scope.__aexit__(kind, error, trace)


async def _until_left(receive: Receive, scope: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _end_now(scope)


def _end_now(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(asyncio.get_running_loop().time())


def _say_failed(leaving: asyncio.Task[None]) -> None:
    report("leaving", leaving)
