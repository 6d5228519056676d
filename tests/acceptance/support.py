"""Processes that do as they are told, and ways to wait for what no signal announces.

Rule: a test says in its requests what the handlers do (`Act`), so that one namespace serves them all.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from progressor import Client, Namespace, Process, Rate, Reject, TaskStatus, TaskType, TraceEntry

NS = "bank.account"
DEADLINE = 30.0

T = TypeVar("T")


class Act(BaseModel):
    """What a handler does, in this order; `then` is what the timeout handler will do."""

    add: int = 0
    then: "Act | None" = None
    emit: str | None = None
    note: dict[str, Any] = {}
    at: datetime | None = None
    after: float | None = None
    remove_after: float | None = None
    unset: bool = False
    remove: bool = False
    gate: str | None = None
    reject: str | None = None
    fail: str | None = None


class Account(BaseModel):
    """The state of the scripted processes."""

    balance: int = 0
    then: Act | None = None


class Gate:
    """A handler stops here until the test lets it pass."""

    def __init__(self) -> None:
        self._came = 0
        self._arrival = asyncio.Event()
        self._opened = asyncio.Event()

    async def pass_through(self) -> None:
        self._came += 1
        self._arrival.set()
        await self._opened.wait()

    async def entered(self, *, by: int = 1) -> None:
        """Return when so many handlers have come to the gate."""
        async with asyncio.timeout(DEADLINE):
            while self._came < by:
                self._arrival.clear()
                await self._arrival.wait()

    def open(self) -> None:
        self._opened.set()


class Scripted:
    """A namespace whose handlers do what their Act says, and remember that they ran."""

    def __init__(self, name: str = NS, **options: Any) -> None:
        self.name = name
        self.ran: list[tuple[str, str]] = []
        self.gates: defaultdict[str, Gate] = defaultdict(Gate)
        self.faults: defaultdict[str, deque[Exception]] = defaultdict(deque)
        """What the next timeouts of a process raise."""
        self.births: defaultdict[str, deque[Exception]] = defaultdict(deque)
        """What its next inits raise."""
        self.namespace = Namespace(name, state=Account, **options)
        self._overlaps: list[str] = []
        self._inside: set[str] = set()
        self._decorate(self.namespace)

    @property
    def overlaps(self) -> list[str]:
        """Processes on which two steps ran at once."""
        return self._overlaps

    def _decorate(self, namespace: Namespace) -> None:
        @namespace.init
        async def open_(process: Process[Account], act: Act) -> int:
            process.state = Account()
            if self.births[process.process_id]:
                self.ran.append((process.process_id, "fault"))
                raise self.births[process.process_id].popleft()
            return await self._do(process, act, "init")

        @namespace.call
        async def act(process: Process[Account], act: Act) -> int:
            return await self._do(process, act, "call")

        @namespace.timeout
        async def fire(process: Process[Account]) -> None:
            if self.faults[process.process_id]:
                self.ran.append((process.process_id, "fault"))
                raise self.faults[process.process_id].popleft()
            planned = process.state.then
            process.state.then = None
            await self._do(process, planned or Act(emit="fired"), "timeout")

        @namespace.repair
        async def mend(process: Process[Account], act: Act) -> int:
            return await self._do(process, act, "repair")

    async def _do(self, process: Process[Account], act: Act, kind: str) -> int:
        process_id = process.process_id
        if process_id in self._inside:
            self._overlaps.append(process_id)
        self._inside.add(process_id)
        try:
            self.ran.append((process_id, kind))
            return await self._perform(process, act)
        finally:
            self._inside.discard(process_id)

    async def _perform(self, process: Process[Account], act: Act) -> int:
        process.state.balance += act.add
        if act.then is not None:
            process.state.then = act.then
        if act.emit is not None:
            process.emit(act.emit, balance=process.state.balance)
        process.metadata.update(act.note)
        if act.after is not None or act.at is not None:
            after = None if act.after is None else timedelta(seconds=act.after)
            process.set_timer(after=after, at=act.at)
        if act.remove_after is not None:
            process.set_timer(after=timedelta(seconds=act.remove_after), remove=True)
        if act.unset:
            process.unset_timer()
        if act.remove:
            process.remove()
        if act.gate is not None:
            await self.gates[act.gate].pass_through()
        if act.reject is not None:
            raise Reject(act.reject, balance=process.state.balance)
        if act.fail is not None:
            raise ValueError(act.fail)
        return process.state.balance


async def until(read: Callable[[], Awaitable[T]], condition: Callable[[T], Any]) -> T:
    """Read until the condition holds: for what happens in its own time, with a deadline."""
    value: T | None = None
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition(value := await read()):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {DEADLINE:g} s in vain, last read: {value!r}") from None
    return value


async def until_events(
    client: Client, process_id: str, *names: str, namespace: str = NS
) -> list[str | None]:
    """The names of a process's events, once there are as many."""
    found = await until(
        lambda: client.get(namespace, process_id), lambda process: process.last_event_id >= len(names)
    )
    listed = [event.name for event in found.history]
    assert listed == list(names)
    return listed


async def until_status(client: Client, process_id: str, status: str, *, namespace: str = NS) -> None:
    """Return when a process has this status."""
    await until(lambda: client.get(namespace, process_id), lambda process: process.status == status)


async def until_waiting(client: Client, process_id: str, count: int, *, namespace: str = NS) -> None:
    """Return when so many requests wait in a process's mailbox."""

    def waiting(trace: list[TraceEntry]) -> bool:
        mailbox = [t for t in trace if t.status is TaskStatus.WAITING and not t.task_type.is_timer]
        return len(mailbox) >= count

    await until(lambda: client.trace(namespace, process_id), waiting)


async def timers(client: Client, process_id: str, *, namespace: str = NS) -> list[TraceEntry]:
    """A process's timers, whatever became of them."""
    return [t for t in await client.trace(namespace, process_id) if t.task_type is TaskType.TIMEOUT]


async def start_and_call(
    client: Client, scripted: Scripted, first: Act, then: Act, *, namespace: str = NS
) -> asyncio.Task[Any]:
    """Start process "p" and call it so that the call comes before any timer that init sets.

    The call waits in the mailbox before init ends, and waiting calls go before timers.
    """
    held = first.model_copy(update={"gate": "init"})
    starting = asyncio.create_task(client.start(namespace, "p", held))
    await scripted.gates["init"].entered()
    calling = asyncio.create_task(client.call(namespace, "p", "act", then))
    await until_waiting(client, "p", 1, namespace=namespace)
    scripted.gates["init"].open()
    await starting
    return calling


async def until_past(client: Client, moment: datetime, *, namespace: str = NS) -> None:
    """Return when PostgreSQL's clock, read off a process put for the purpose, is behind a moment."""

    async def now() -> datetime:
        process_id = f"clock-{uuid4()}"
        await client.put(namespace, process_id)
        created_at = (await client.get(namespace, process_id)).created_at
        await client.remove(namespace, process_id)
        return created_at

    await until(now, lambda now: now > moment)


async def outline(client: Client, process_id: str, *, namespace: str = NS) -> list[tuple[str, str]]:
    """Type and status of every task of a process."""
    return [(t.task_type.value, t.status.value) for t in await client.trace(namespace, process_id)]


class Xor:
    """A toy cipher."""

    def encode(self, data: bytes, /) -> bytes:
        return b"\x00" + bytes(byte ^ 0x55 for byte in data)

    def decode(self, data: bytes, /) -> bytes:
        return bytes(byte ^ 0x55 for byte in data[1:])


class Flaky:
    """A namespace whose handlers fail until they are mended."""

    def __init__(self, **options: Any) -> None:
        self.namespace = Namespace("flaky", state=int, **options)
        self.is_mended = False
        self.ran: list[Any] = []

        @self.namespace.init
        async def begin(process: Process[int]) -> None:
            process.state = 0

        @self.namespace.call
        async def add(process: Process[int], amount: int) -> int:
            self.ran.append((amount, process.context))
            if not self.is_mended:
                raise ValueError("a bug")
            process.state += amount
            return process.state

        @self.namespace.repair
        async def mend(process: Process[int]) -> None: ...


def assert_kept(rate: Rate, began: Sequence[datetime]) -> None:
    """In every span no more began than the limit and the burst."""
    for first in began:
        in_span = [each for each in began if first <= each <= first + rate.per]
        assert len(in_span) <= rate.limit + rate.burst
