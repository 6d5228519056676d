"""Steps that wait for other processes: their code, their waits, and the slots that they lend.

Rule: a wait that would close a cycle is refused, for it could never end. A step that waits lends its slot
to the process for which it waits, so no step waits for a slot that only waiting steps hold. Steps that do
not wait pay nothing for it.
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
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from progressor.errors import CallCycle
from progressor.errors.wordings import named
from progressor.handlers.running.forks import note_child
from progressor.model import Task
from progressor.supervision import Background, watched
from progressor.trace_context import carried, enter, leave, trace_around

if TYPE_CHECKING:
    from progressor.spans.otel import StepSpan

# Seconds between two looks whether the slot of a waiting step is needed: at first, and at the longest.
_LOOK_AGAIN, _LOOK_AT_LAST = 0.05, 1.0

Place = tuple[str, ...]
RunNext = Callable[[str, int], Awaitable[bool]]


class Address(NamedTuple):
    """The address of a process; `place` names the database, as far as its URL does."""

    place: Place
    namespace: str
    process_id: str

    def __str__(self) -> str:
        return named(self.namespace, self.process_id)


class RunningStep:
    """A step whose handler runs. The handler's code finds it, also in its thread and in tasks it makes.

    `ended` is True once the step is over. `trace` is the trace context of its requests and log lines: that
    of its span, or else of its task.
    """

    __slots__ = ("_around", "_slot", "_span", "_token", "ended", "lending", "task", "thread", "trace")

    def __init__(self, lending: Lending, task: Task, span: StepSpan | None = None) -> None:
        self.lending = lending
        self.task = task
        self._span = span
        self.trace = None if span is None else span.trace
        if self.trace is None and task.trace is not None:
            self.trace = carried(task.trace)
        self.thread: Future[Any] | None = None
        """The run of a sync handler in its thread."""
        self.ended = False
        self._slot: asyncio.Lock | None = None
        self._token: Token[RunningStep | None]
        self._around: Token[str | None] | None = None

    def __enter__(self) -> Self:
        self._token = _step.set(self)
        # None too: the trace context of whoever began this asyncio task is not that of the step.
        self._around = None if trace_around() is self.trace else enter(self.trace)
        if self._span is not None:
            self._span.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.leave(error)
        if self._around is not None:
            leave(self._around)
        _step.reset(self._token)
        self.ended = True

    @property
    def address(self) -> Address:
        """The address of the step's process."""
        return Address(self.lending.place, self.task.namespace, self.task.process_id)

    @property
    def slot(self) -> asyncio.Lock:
        """The lock of the slot that the waiting step lends: one chain at a time runs in it."""
        if self._slot is None:
            self._slot = asyncio.Lock()
        return self._slot

    @property
    def left_behind(self) -> Future[Any] | None:
        """The thread's run of a sync handler that has not ended, if there is one."""
        return None if self.thread is None or self.thread.done() else self.thread


_step: ContextVar[RunningStep | None] = ContextVar("progressor_step", default=None)


def calling_step() -> RunningStep | None:
    """Return the step to which this code belongs, also when the step is over."""
    return _step.get()


def running_step() -> RunningStep | None:
    """Return the step to which this code belongs, None when the step is over."""
    step = _step.get()
    return None if step is None or step.ended else step


class Wait:
    """A scope in which a step waits for a process; CallCycle on entering if it could never end."""

    def __init__(self, step: RunningStep, target: Address) -> None:
        self.step = step
        self.target = target
        self.over = asyncio.Event()
        """Set at the end of the wait. Belongs to the engine's loop; a client may have another one."""
        self._lends = False

    def __enter__(self) -> Self:
        with _lock:
            way = _way(self.target, self.step.address)
            if way is not None:
                raise CallCycle([str(each) for each in (self.step.address, *way)])
            _waits.setdefault(self.step.address, []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            waits = _waits[self.step.address]
            waits.remove(self)
            if not waits:
                del _waits[self.step.address]
        if self._lends:
            self.step.lending.end(self)

    def lend(self, process_no: int) -> None:
        """Let this process run in the slot of the step that waits, if no other slot is free."""
        self._lends = True
        self.step.lending.begin(self, process_no)


class NoWait:
    """The scope of a caller outside of all steps: its wait has no slot to lend and closes no cycle."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: nothing was begun."""

    def lend(self, process_no: int) -> None:
        """Do nothing: there is no slot to lend."""


_NO_WAIT = NoWait()

# For the whole OS process: its engines and clients may each have a thread and a loop of their own.
_waits: dict[Address, list[Wait]] = {}
_lock = Lock()


def waiting_for(place: Place, namespace: str, process_id: str) -> Wait | NoWait:
    """Return the scope in which this code waits for a process: a Wait in a step, else a NoWait."""
    step = running_step()
    return _NO_WAIT if step is None else Wait(step, Address(place, namespace, process_id))


def _way(start: Address, end: Address) -> list[Address] | None:
    """Return the processes of a chain of waits from `start` to `end`; None if there is no such chain."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for wait in _waits.get(way[-1], ()):
            # Code that an ended step left behind may still wait, but no step depends on it.
            if not wait.step.ended and wait.target not in seen:
                seen.add(wait.target)
                ways.append([*way, wait.target])
    return None


class Lending:
    """The slots that the waiting steps of an engine lend, each to one process at a time.

    `run_next` runs the first waiting task of a process of a `served` namespace, if no other slot is free
    for it. It returns when that is over, with False if there was nothing to run.
    """

    def __init__(self, place: Place, served: Container[str], run_next: RunNext) -> None:
        self.place = place
        self._served = served
        self._run_next = run_next
        self._loop = asyncio.get_running_loop()
        self._background = Background()

    def begin(self, wait: Wait, process_no: int) -> None:
        """Lend the slot to this process, whose run may end the wait; from any thread."""
        if wait.target.place == self.place and wait.target.namespace in self._served:
            call_in(self._loop, watched("lending", self._begin), wait, process_no)

    def end(self, wait: Wait) -> None:
        """Take the slot back, because the wait is over; from any thread."""
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
        """Wait up to two seconds for the loans to end; False if some did not, and were cancelled."""
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
    """Call a function in an event loop, from any thread; do nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
