"""Run a service until a signal: the first stops it gracefully, the second at once.

`demo` and `bench`, which are no services, run until they are done or a signal comes.

Rule: Python handles the signals, not the event loop, so that a handler that blocks the loop cannot hold up
the second signal. A stop is bounded, whatever hangs. A forked child, as of `multiprocessing`, is no
service: signals do to it what they would do without one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar

import typer
from rich.console import Console

from progressor.deployment import logs
from progressor.deployment.loops import serving
from progressor.deployment.settings import Settings
from progressor.loggers import Logger
from progressor.supervision import watched

T = TypeVar("T")

log = Logger("progressor.cli")

_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The time a stop may take beyond the grace of steps: for connections, an outage, the user's threads.
BEYOND_GRACE = timedelta(seconds=40)


def leave(signum: int) -> NoReturn:
    """End this OS process with status 128 + `signum`, once its last log lines are written."""
    logs.flush()
    os._exit(128 + signum)


def warn_of_polls(settings: Settings) -> None:
    """Log a warning if signals are off: how slow that makes every answer, and which setting ends it."""
    if not settings.signals:
        log.warning(
            "signals are off, answers wait for polls",
            extra={
                "poll_seconds": settings.reply_poll_interval.total_seconds(),
                "instead": "unset PROGRESSOR_SIGNALS; past a pooler set PROGRESSOR_LISTEN_DATABASE_URL",
            },
        )


class Runner:
    """The runner of one service: `with Runner(...) as runner: runner.run(service, ...)`.

    Within the block it handles SIGINT and SIGTERM. It calls `stopping` in a thread of its own: at the first
    signal with the signal's name, at `stop` with None; and `again` in the signal handler, at the second.
    """

    def __init__(
        self,
        *,
        grace: timedelta,
        stopping: Callable[[str | None], None],
        again: Callable[[int], None] = leave,
    ) -> None:
        self._grace = grace
        self._stopping = stopping
        self._again = again
        self._before: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()
        self._left = threading.Event()
        self._entering: asyncio.Task[Any] | None = None
        self._signal: int | None = None

    def __enter__(self) -> Self:
        self._before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        _running.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self.restore()

    def restore(self) -> None:
        """Handle signals as before the block."""
        _running.discard(self)
        for each, before in self._before.items():
            signal.signal(each, before)

    def run(self, service: AbstractAsyncContextManager[T], started: Callable[[T], None]) -> None:
        """Enter the service, call `started`, and leave the service at a signal or `stop`."""
        with serving() as runner, suppress(_StoppedEarly):
            runner.run(self._until_asked(service, started))

    async def _until_asked(
        self, service: AbstractAsyncContextManager[T], started: Callable[[T], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            self._entering = asyncio.current_task()
            try:
                running = await stack.enter_async_context(service)
            except asyncio.CancelledError:
                raise _StoppedEarly from None
            self._entering = None
            started(running)
            await self._asked.wait()

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if self._signal is not None:
            self._again(signum)
            return
        if self._loop is None:
            # No loop runs yet, so nothing can stop gracefully: the earlier signal handler runs.
            signal.signal(signum, self._before[signum])
            signal.raise_signal(signum)
            return
        self._signal = signum
        self._stop(self._loop, signum)

    def stop(self) -> None:
        """Stop as at a signal; the next signal still counts as the first. Call it on the event loop."""
        if self._signal is None:
            self._stop(asyncio.get_running_loop(), None)

    def _stop(self, loop: asyncio.AbstractEventLoop, signum: int | None) -> None:
        # In threads, because the signal may have interrupted a write to the same stream; in two, so that
        # the stop is bounded even if `stopping` hangs.
        name = None if signum is None else signal.Signals(signum).name
        threading.Thread(target=watched("stop", self._stopping), args=[name], daemon=True).start()
        threading.Thread(target=watched("stop", self._bound), args=[signum], daemon=True).start()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._begin_to_stop)

    def _bound(self, signum: int | None) -> None:
        if not self._left.wait((self._grace + BEYOND_GRACE).total_seconds()):
            log.error("not stopped in time, leaving")
            leave(signal.SIGTERM if signum is None else signum)

    def _begin_to_stop(self) -> None:
        self._asked.set()
        if self._entering is not None:
            self._entering.cancel()


class _Forking(threading.local):
    """The signals that the forking thread blocked before; None if no service runs."""

    blocked: set[int] | None = None


def _before_fork() -> None:
    # Python drops a signal that reaches a child before its hooks have run: blocked, it waits for them.
    _forking.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _running else None


def _after_fork() -> None:
    if _forking.blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.blocked)


def _after_fork_in_child() -> None:
    for runner in tuple(_running):
        runner.restore()
    _after_fork()


_running: set[Runner] = set()
_forking = _Forking()
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class _StoppedEarly(Exception):
    """A signal came before the service had started."""


@contextmanager
def until_stopped(console: Console, says: str) -> Iterator[None]:
    """Run the block; Ctrl-C and SIGTERM end it with the line `says` and status 130."""
    # SIGTERM gets the handler of Ctrl-C itself: a job in the background ignores SIGINT.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        console.print(says)
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
