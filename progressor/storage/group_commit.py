"""Group commit: concurrent items of one verb travel as one batch, in one transaction.

Rule: no timer. A lone item leaves at once; what arrives while a transaction is in flight leaves with the
next one. Two flights at most, so that Python prepares one batch while PostgreSQL commits the other.
A bad item fails alone: a batch that PostgreSQL refuses is run again item by item, beside the flights, and
later items of its processes wait until these are through. What waits to leave is bounded in number and in
bytes; an item that is withdrawn in time never leaves.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from progressor import metrics
from progressor.errors import SchemaMismatch, StorageUnavailable
from progressor.model import metadata_size
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints
from progressor.storage.postgres.sqlstates import BatchRefused
from progressor.storage.values import LostLease, Request, Saved, Step
from progressor.supervision import expect, log_failed, watched

Item = TypeVar("Item")
Result = TypeVar("Result")
_Batch = list[tuple[Item, asyncio.Future[Result]]]
_Queue = OrderedDict[asyncio.Future[Result], tuple[Item, int]]

MAX_FLIGHTS = 2
MAX_BATCH = 128
# Items; what waits is shared out over the free flights. Otherwise a crowd that asks at once stays together,
# batch after batch, with Python idle while PostgreSQL works and the other way round. Smaller shares cost
# more in transactions than they win.
LEAST_SHARE = 16
# A batch travels in one message, which PostgreSQL takes only below 1 GB.
MAX_BATCH_BYTES = 32 << 20


class Room(NamedTuple):
    """The most items and bytes that may wait to leave; more are refused.

    An eighth of the items may wait in one queue: a process that was found locked, or one that is started
    again and again, leaves room for others.
    """

    items: float
    size: float


# The result of a step is never refused: a worker has no more of them than slots.
UNBOUNDED = Room(math.inf, math.inf)
REQUESTS = Room(20_000, 256 << 20)


class _Retries(Generic[Item, Result]):
    """The items of a process that are run alone, one by one, and the later ones that wait for these."""

    def __init__(self) -> None:
        self.items: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self.behind: _Queue[Result, Item] = OrderedDict()


class Batcher(Generic[Item, Result]):
    """The batches of one verb; in a batch no two items have the same `conflict(item)`.

    `process(item)` is the process that an item locks, by default its conflict; `size(item)` is about how
    many bytes it carries. `run_again` runs one item that an earlier transaction may have committed.
    """

    def __init__(
        self,
        verb: str,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        conflict: Callable[[Item], Hashable],
        size: Callable[[Item], int] = lambda _item: 0,
        *,
        process: Callable[[Item], Hashable] | None = None,
        room: Room = UNBOUNDED,
        run_again: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]] | None = None,
    ) -> None:
        expect("batch")
        self._verb = verb
        self._run = run
        self._run_again = run_again or run
        self._conflict = conflict
        self._process = process or conflict
        self._size = size
        self._room = room
        # The waiting items and their sizes, by the futures of their callers, in a queue for each hash of
        # `conflict`: only the first of a queue can leave. Two conflicts of one hash only delay each other.
        # Then the number and the bytes of all waiting items.
        self._queues: OrderedDict[int, _Queue[Result, Item]] = OrderedDict()
        self._waiting = self._waiting_bytes = 0
        self._flights: set[asyncio.Task[None]] = set()
        # The runs of items of refused batches, one for each process; these by the hash of `process`.
        self._retrying: set[asyncio.Task[None]] = set()
        self._retries: dict[int, _Retries[Item, Result]] = {}
        # The flight that has not chosen its items yet.
        self._planned: asyncio.Task[None] | None = None
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # A flight must not see the context variables of the caller that happened to be first.
        self._context = contextvars.copy_context()
        # Callbacks of the loop, made once.
        self._on_landing = watched("batch", self._land)
        self._on_retries_ended = watched("batch", self._retries_ended)

    @property
    def is_idle(self) -> bool:
        """Return whether no item waits to leave, or is under way."""
        return not (self._waiting or self._flights or self._retrying)

    async def idle(self) -> None:
        """Wait until no item waits to leave, or is under way."""
        while not self.is_idle:
            await asyncio.wait({*self._flights, *self._retrying})

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Return the future of the item's result; StorageUnavailable if there is no room, or after `stop`.

        Once the item has left, it is carried through, even if its caller goes away.
        """
        loop = self._loop
        if loop is None:
            # Kept from the first item on: to ask for it each time costs as much as the rest of this method.
            loop = self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        if self._stopped:
            answer.set_exception(_closed())
            return answer
        size, room = self._size(item), self._room
        if self._waiting and (self._waiting >= room.items or self._waiting_bytes + size > room.size):
            waiting = f"{self._waiting:,} requests ({self._waiting_bytes:,} bytes) wait"
            answer.set_exception(_overloaded(waiting))
        elif len(queue := self._queue_of(item)) > room.items / 8:
            answer.set_exception(_overloaded(f"{len(queue):,} requests for the same process wait"))
        else:
            self._waiting += 1
            self._waiting_bytes += size
            queue[answer] = item, size
            self._plan(loop)
        return answer

    def _queue_of(self, item: Item) -> _Queue[Result, Item]:
        """Return the queue in which an item is to wait; if it is a new one, the item must be put there."""
        if self._retries and (retries := self._retries.get(hash(self._process(item)))):
            return retries.behind
        conflict = hash(self._conflict(item))
        queue = self._queues.get(conflict)
        if queue is None:
            queue = self._queues[conflict] = OrderedDict()
        return queue

    def withdraw(self, item: Item, answer: asyncio.Future[Result]) -> None:
        """Drop an item whose answer nobody awaits; one that has left already goes on."""
        conflict = hash(self._conflict(item))
        queue = self._queues.get(conflict)
        retries = self._retries.get(hash(self._process(item)))
        if queue is not None and answer in queue:
            self._take(queue, answer)
            if not queue:
                del self._queues[conflict]
            answer.cancel()
        elif retries is not None and answer in retries.behind:
            self._take(retries.behind, answer)
            answer.cancel()

    def _take(self, queue: _Queue[Result, Item], answer: asyncio.Future[Result]) -> tuple[Item, int]:
        item, size = queue.pop(answer)
        self._waiting -= 1
        self._waiting_bytes -= size
        return item, size

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a flight at the end of this turn of the loop, with all items of the turn."""
        # So many processes are not held up by one item: other items wait until these are through.
        if self._planned is None and len(self._flights) < MAX_FLIGHTS and len(self._retrying) < MAX_BATCH:
            # Not by the loop's task factory: an eager one would begin the flight before the turn is over.
            self._planned = flight = asyncio.Task(self._fly(), loop=loop, context=self._context.copy())
            self._flights.add(flight)
            flight.add_done_callback(self._on_landing)

    def _go_on(self) -> None:
        if self._queues:
            self._plan(asyncio.get_running_loop())

    async def _fly(self) -> None:
        self._planned = None
        batch = self._next_batch()
        if not batch:
            return
        try:
            self._go_on()
            await self._carry(batch)
        except asyncio.CancelledError:
            # The batcher was stopped while the batch was under way.
            for _, answer in batch:
                _fail(answer, _closed())
            raise
        except BaseException as error:
            # A defect: no caller must wait for an answer that will not come.
            log_failed("batch", error, verb=self._verb)
            for _, answer in batch:
                _fail(answer, error)
            if not isinstance(error, Exception):
                raise

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if flight is self._planned:
            # It was cancelled before it began.
            self._planned = None
        self._go_on()

    def _next_batch(self) -> _Batch[Item, Result]:
        batch: _Batch[Item, Result] = []
        bytes_ = 0
        # Flights that are free, with this one, which is in `_flights` already.
        free = MAX_FLIGHTS - len(self._flights) + 1
        share = math.ceil(len(self._queues) / free)
        most = min(MAX_BATCH, max(LEAST_SHARE, share))
        for _ in range(min(most, len(self._queues))):
            conflict, queue = self._queues.popitem(last=False)
            answer, (_, size) = next(iter(queue.items()))
            if batch and bytes_ + size > MAX_BATCH_BYTES:
                # It becomes the first of the next batch.
                self._queues[conflict] = queue
                self._queues.move_to_end(conflict, last=False)
                break
            item, _ = self._take(queue, answer)
            batch.append((item, answer))
            bytes_ += size
            if queue:
                # The rest of the queue goes behind all other queues.
                self._queues[conflict] = queue
        return batch

    async def _carry(self, batch: _Batch[Item, Result]) -> None:
        metrics.child(metrics.BATCH_SIZE, self._verb).observe(len(batch))
        try:
            results = await self._run([item for item, _ in batch])
        except (StorageUnavailable, SchemaMismatch) as error:
            # No item is at fault: each caller gets the error.
            for _, answer in batch:
                _fail(answer, error)
        except BatchRefused:
            # One item may be the cause: it must hold up no other.
            self._retry_one_by_one(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, one item's fault is not the others'
            if len(batch) == 1:
                _fail(batch[0][1], error)
            else:
                # The error may have come after the commit: each item finds what it has done already.
                self._retry_one_by_one(batch)
        else:
            for (_, answer), result in zip(batch, results, strict=True):
                _settle(answer, result)

    def _retry_one_by_one(self, batch: _Batch[Item, Result]) -> None:
        """Run each of these alone, those of one process in their order; what waits of it waits for them."""
        for item, answer in batch:
            process = hash(self._process(item))
            retries = self._retries.get(process)
            if retries is None:
                retries = self._retries[process] = _Retries()
                self._begin_retries(process, retries)
            retries.items.append((item, answer))
        queues, self._queues = self._queues, OrderedDict()
        for queue in queues.values():
            for answer, (item, size) in queue.items():
                self._queue_of(item)[answer] = item, size

    def _begin_retries(self, process: int, retries: _Retries[Item, Result]) -> None:
        retrying = asyncio.get_running_loop().create_task(self._retry_all(retries))
        self._retrying.add(retrying)
        retrying.add_done_callback(partial(self._on_retries_ended, process))

    async def _retry_all(self, retries: _Retries[Item, Result]) -> None:
        while retries.items:
            await self._retry(*retries.items[0])
            retries.items.popleft()

    async def _retry(self, item: Item, answer: asyncio.Future[Result]) -> None:
        try:
            (result,) = await self._run_again([item])
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
            _fail(answer, error)
        else:
            _settle(answer, result)

    def _retries_ended(self, process: int, retrying: asyncio.Task[None]) -> None:
        self._retrying.discard(retrying)
        retries = self._retries[process]
        if retries.items and not self._stopped:
            # They came when its last item was through.
            self._begin_retries(process, retries)
            return
        del self._retries[process]
        for _, answer in retries.items:
            _fail(answer, _closed())
        for waiting, (item, size) in retries.behind.items():
            self._queue_of(item)[waiting] = item, size
        self._go_on()

    async def stop(self) -> None:
        """Cancel all flights, and fail items that wait or come later.

        What was committed stays committed.
        """
        self._stopped = True
        for queue in (*self._queues.values(), *(retries.behind for retries in self._retries.values())):
            for answer in queue:
                _fail(answer, _closed())
            queue.clear()
        self._queues.clear()
        self._waiting = self._waiting_bytes = 0
        flights = [*self._flights, *self._retrying]
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)


def _overloaded(waiting: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"overloaded: {waiting} to be sent to PostgreSQL already; nothing was written: try again later"
    )


def _closed() -> StorageUnavailable:
    return StorageUnavailable("closed while the request was under way: ask again with the same key")


def _settle(answer: asyncio.Future[Result], result: Result) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Result], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


Conflict = Callable[[Request], Hashable]
"""A key of a request, of which a batch has one at most."""


def by_process(request: Request) -> Hashable:
    """Return the process of a request."""
    return request.namespace, request.process_id


def by_key(request: Request) -> Hashable:
    """Return the process and the idempotency key of a request."""
    return request.namespace, request.process_id, request.idempotency_key


def batch_requests(
    verb: str,
    run: Callable[[Sequence[Request]], Awaitable[Sequence[Result]]],
    *,
    by: Conflict,
    run_again: Callable[[Sequence[Request]], Awaitable[Sequence[Result]]],
) -> Batcher[Request, Result]:
    """Return a batcher of requests, whose room is bounded; `run_again` never raises BatchRefused."""
    return Batcher(verb, run, by, _size_of, process=by_process, room=REQUESTS, run_again=run_again)


def batch_steps(
    storage: Storage, hints: Callable[[Sequence[Step]], Hints | None] = lambda _: None
) -> Batcher[Step, Saved | LostLease]:
    """Return a batcher of ended steps, with at most one of each process in a batch.

    `hints` returns those that leave behind the transaction that saves the steps.
    """

    async def save(steps: Sequence[Step], tried: bool = False) -> Sequence[Saved | LostLease]:
        return await storage.save_result(steps, hints=hints(steps), tried=tried)

    again = partial(save, tried=True)
    return Batcher("save_result", save, _step_process, attrgetter("size"), run_again=again)


def _size_of(request: Request) -> int:
    return len(request.args or b"") + len(request.context or b"") + metadata_size(request.process_metadata)


def _step_process(step: Step) -> Hashable:
    return step.task.process_no
