"""Steps that wait for other processes: which code belongs to which step, who waits for whom, and whose
slot runs what is waited for.

Rule: a wait that only its own end could end is refused. A step that waits lends its slot to the process
for which it waits, so nobody waits for a slot that only waiting steps hold. Steps that wait for nobody pay
nothing for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Container
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple, Self

from progressor.errors import CallCycle, named
from progressor.handlers.forks import note_child
from progressor.supervision import Background, watched

# How soon a step that waits looks whether its slot is needed, and how seldom in the end, in seconds.
_LOOK_AGAIN, _LOOK_AT_LAST = 0.05, 1.0

Place = tuple[str, ...]
RunNext = Callable[[str, int], Awaitable[bool]]


class Address(NamedTuple):
    """Where a process is; `place` names the database, as far as its URL does."""

    place: Place
    namespace: str
    process_id: str

    def __str__(self) -> str:
        return named(self.namespace, self.process_id)


class RunningStep:
    """A step whose handler runs. The handler's code finds it, also in its thread and in tasks it makes."""

    __slots__ = ("_slot", "_token", "ended", "lending", "namespace", "process_id", "thread")

    def __init__(self, lending: Lending, namespace: str, process_id: str) -> None:
        self.lending = lending
        self.namespace = namespace
        self.process_id = process_id
        self.thread: Future[Any] | None = None
        """Where a sync handler runs."""
        self.ended = False
        self._slot: asyncio.Lock | None = None
        self._token: Token[RunningStep | None]

    def __enter__(self) -> Self:
        self._token = _step.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _step.reset(self._token)
        self.ended = True

    @property
    def address(self) -> Address:
        """Of the step's process."""
        return Address(self.lending.place, self.namespace, self.process_id)

    @property
    def slot(self) -> asyncio.Lock:
        """Who holds it, runs in the slot that the waiting step lends."""
        if self._slot is None:
            self._slot = asyncio.Lock()
        return self._slot

    @property
    def left_behind(self) -> Future[Any] | None:
        """The thread in which the handler still runs although its step is over."""
        return None if self.thread is None or self.thread.done() else self.thread


_step: ContextVar[RunningStep | None] = ContextVar("progressor_step", default=None)


def calling_step() -> RunningStep | None:
    """The step to which this code belongs, also when that is over."""
    return _step.get()


def running_step() -> RunningStep | None:
    """The step to which this code belongs, while it runs."""
    step = _step.get()
    return None if step is None or step.ended else step


class Wait:
    """A scope in which a step waits for a process; CallCycle if that could never end."""

    def __init__(self, step: RunningStep, target: Address) -> None:
        self.step = step
        self.target = target
        self.over = asyncio.Event()
        """Belongs to the engine's loop; a client may have another one."""
        self._lends = False

    def __enter__(self) -> Self:
        with _lock:
            way = _way(self.target, self.step.address)
            if way is not None:
                raise CallCycle([str(each) for each in (self.step.address, *way)])
            _waits.setdefault(self.step.address, []).append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            waits = _waits[self.step.address]
            waits.remove(self)
            if not waits:
                del _waits[self.step.address]
        if self._lends:
            self.step.lending.end(self)

    def lend(self, process_no: int) -> None:
        """Let the slot of the step that waits run this process, if no other slot is free."""
        self._lends = True
        self.step.lending.begin(self, process_no)


class NoWait:
    """What a caller outside of all steps waits for concerns nobody."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: nothing was begun."""

    def lend(self, process_no: int) -> None:
        """Do nothing: there is no slot to lend."""


_NO_WAIT = NoWait()

# Of the whole OS process: its engines and clients may each have a thread and a loop of their own.
_waits: dict[Address, list[Wait]] = {}
_lock = Lock()


def waiting_for(place: Place, namespace: str, process_id: str) -> Wait | NoWait:
    """The scope in which the code of a step, if this is such, waits for a process."""
    step = running_step()
    return _NO_WAIT if step is None else Wait(step, Address(place, namespace, process_id))


def _way(start: Address, end: Address) -> list[Address] | None:
    """From a process that is waited for to the one that waits, if a chain of waits leads there."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for wait in _waits.get(way[-1], ()):
            # Of a step that is over, something that it left behind may still ask: nobody waits for that.
            if not wait.step.ended and wait.target not in seen:
                seen.add(wait.target)
                ways.append([*way, wait.target])
    return None


class Lending:
    """The slots that the waiting steps of an engine lend, each to one process at a time.

    `run_next` runs the step that waits first on a process of a `served` namespace, if no other slot is free
    for it, and returns when that is over, with False if there was nothing to run.
    """

    def __init__(self, place: Place, served: Container[str], run_next: RunNext) -> None:
        self.place = place
        self._served = served
        self._run_next = run_next
        self._loop = asyncio.get_running_loop()
        self._background = Background()

    def begin(self, wait: Wait, process_no: int) -> None:
        """Lend a slot to this process, from any thread: what runs it may end this wait."""
        if wait.target.place == self.place and wait.target.namespace in self._served:
            call_in(self._loop, watched("lending", self._begin), wait, process_no)

    def end(self, wait: Wait) -> None:
        """Take the slot back, from any thread: the wait is over."""
        call_in(self._loop, wait.over.set)

    def _begin(self, wait: Wait, process_no: int) -> None:
        self._background.keep("lending", partial(self._lend, wait, process_no))

    async def _lend(self, wait: Wait, process_no: int) -> None:
        pause = _LOOK_AGAIN
        while not wait.over.is_set() and not wait.step.ended:
            async with wait.step.slot:
                ran = not wait.over.is_set() and await self._run_next(wait.target.namespace, process_no)
            if not ran:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await wait.over.wait()
                pause = min(pause * 2, _LOOK_AT_LAST)

    async def stop(self) -> bool:
        """Wait for the loans of steps that are over; False if one had to be given up."""
        try:
            async with asyncio.timeout(2 * _LOOK_AT_LAST):
                await self._background.ended()
        except TimeoutError:
            await self._background.stop()
            return False
        return True


def _forget_steps_of_parent() -> None:
    global _lock  # noqa: PLW0603  # a thread that is not in this process may hold it
    _lock = Lock()
    _waits.clear()
    if running_step() is not None:
        note_child()
    _step.set(None)


os.register_at_fork(after_in_child=_forget_steps_of_parent)


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """Call a function in an event loop from any thread; a loop that has ended needs to hear nothing."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
