"""The client for code without an event loop: Django, Flask, scripts.

Rule: no second implementation. Each method runs Client's own on one event loop in a background thread;
many threads may share one SyncClient, and their requests travel together. A signal handler that interrupts
any line here may use the same client.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar

from progressor.app.app import App, app_of
from progressor.client.asks import Timeout
from progressor.client.client import Client
from progressor.client.feed.positions import Start
from progressor.client.feed.subscription import Subscription
from progressor.client.feed.sync_subscription import SyncSubscription
from progressor.client.handle import ProcessHandle
from progressor.client.results import FeedEvent, ProcessChange
from progressor.codecs.codec import Codec, PlacedCodec
from progressor.errors import StorageUnavailable
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process, StateT
from progressor.inputs import HistoryRange
from progressor.model import FeedKind
from progressor.supervision import keep_thread, watched

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    @functools.wraps(method)
    def wait_for(client: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.run(lambda inner: method(inner, *args, **kwargs))

    return wait_for


def _blocking_on(
    method: Callable[Concatenate[ProcessHandle[StateT], P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncProcessHandle[StateT], P], T]:
    @functools.wraps(method)
    def wait_for(handle: SyncProcessHandle[StateT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def on(inner: Client) -> Coroutine[Any, Any, T]:
            return method(inner.process(handle.of, handle.process_id), *args, **kwargs)

        return handle.client.run(on)

    return wait_for


class _Background(NamedTuple):
    """One event loop in a thread of its own, and the client that lives on it."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    ended: threading.Event
    client: Client


class _Here:
    """The background of a client in one OS process, and the lock of whoever begins or ends it."""

    def __init__(self) -> None:
        # A signal handler may interrupt who holds it, and use the client in the same thread.
        self.lock = threading.RLock()
        self.background: _Background | None = None


class _Asked(Generic[T]):
    """A coroutine on a background loop, and the wait of another thread for its end.

    A future of `concurrent.futures` has a lock that the waiting thread takes, and without which the loop
    cannot go on: a signal handler that interrupts the thread there would wait for ever.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = threading.Lock()
        self._ended.acquire()
        self._task: asyncio.Task[T]
        loop.call_soon_threadsafe(watched("client loop", self._begin), work)

    def _begin(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(watched("client loop", self._end))

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            # Looked at here, because who waits may have been interrupted.
            task.exception()
        self._ended.release()

    def result(self) -> T:
        """Wait for the end, and return the result or raise the error."""
        try:
            self._ended.acquire()
        except BaseException:
            # Ctrl-C in the waiting thread ends the wait; a request that was accepted goes on.
            self._loop.call_soon_threadsafe(watched("client loop", self._cancel))
            raise
        return self._task.result()

    def _cancel(self) -> None:
        self._task.cancel()


class SyncClient:
    """Client's methods, blocking. It connects at the first use, and anew in a forked child.

    Errors and `timeout` are those of Client: seconds or a timedelta, None for `reply_timeout` (60 s by
    default). A method that is under way when another thread closes the client raises StorageUnavailable, or
    ReplyTimeout if its request was accepted.
    """

    def __init__(
        self,
        dsn: str,
        namespaces: App | Iterable[Namespace] = (),
        *,
        codec: Codec | PlacedCodec | None = None,
        **options: Any,
    ) -> None:
        app = app_of(namespaces)

        def make() -> Client:
            return Client(dsn, app, codec=codec, **options)

        make()  # bad arguments raise here, not at the first use
        self._make = make
        self._closed = False
        self._by_pid: dict[int, _Here] = {}

    @property
    def _here(self) -> _Here:
        # In a forked child no thread runs the parent's loop or will release its lock. The parent's part is
        # kept and never touched: closing it here would disturb the parent. Python's hooks after a fork are
        # no help, as a program in C that forks, such as uWSGI, need not call them.
        pid = os.getpid()
        return self._by_pid.get(pid) or self._by_pid.setdefault(pid, _Here())

    def run(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run one of Client's coroutines on the background loop, and return its result or raise its error.

        Raise StorageUnavailable if the client is closed, before or meanwhile.
        """
        # Under the lock only a signal handler's `close` can end the loop between these lines.
        here = self._here
        with here.lock:
            background = self._started(here)
            work = ask(background.client)
            try:
                asked = _Asked(work, background.loop)
            except RuntimeError:
                work.close()
                raise StorageUnavailable("the client is closed") from None
        try:
            return asked.result()
        except asyncio.CancelledError:
            raise StorageUnavailable("the client was closed while this was under way") from None

    def _started(self, here: _Here) -> _Background:
        if here.background is None and not self._closed:
            client = self._make()
            loop, ended = asyncio.new_event_loop(), threading.Event()
            thread = keep_thread("client loop", loop.run_forever, until=ended)
            made = _Background(loop, thread, ended, client)
            # A signal handler may have used the client meanwhile, or closed it.
            if here.background is None and not self._closed:
                here.background = made
            else:
                _end(made)
        background = here.background
        if background is None:
            raise StorageUnavailable("the client is closed")
        return background

    def __enter__(self) -> Self:
        try:
            self.run(Client.__aenter__)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, for good; requests that were accepted go on."""
        here = self._here
        with here.lock:
            self._closed = True
            background, here.background = here.background, None
        if background is not None:
            asyncio.run_coroutine_threadsafe(background.client.close(), background.loop).result()
            _end(background)

    def process(self, namespace: Namespace[StateT] | str, process_id: str) -> SyncProcessHandle[StateT]:
        """Return a handle on one process, whose methods lack the first two arguments.

        With a Namespace in place of its name, `get` returns a state of the declared type. The handle's
        methods raise InvalidRequest if these two break a rule.
        """
        return SyncProcessHandle(self, namespace, process_id)

    def subscribe(
        self,
        *,
        namespaces: Iterable[str] | None = None,
        events: Iterable[str] | None = None,
        kinds: Iterable[FeedKind] = ("event",),
        after: Start = "latest",
    ) -> Iterator[FeedEvent]:
        """Return what processes do, as Client.subscribe does, for a plain `for`."""

        async def begin(client: Client) -> AsyncIterator[FeedEvent]:
            return client.subscribe(namespaces=namespaces, events=events, kinds=kinds, after=after)

        return self._each(self.run(begin))

    def subscription(
        self,
        name: str,
        *,
        namespaces: Iterable[str] | None = None,
        events: Iterable[str] | None = None,
        kinds: Iterable[FeedKind] = ("event",),
        start: Start = "latest",
        slices: int | None = None,
        lease_age: timedelta = timedelta(seconds=10),
    ) -> SyncSubscription:
        """Return a reader of a durable subscription, as Client.subscription does, for a plain `with`."""

        async def made(client: Client) -> Subscription:
            return client.subscription(
                name,
                namespaces=namespaces,
                events=events,
                kinds=kinds,
                start=start,
                slices=slices,
                lease_age=lease_age,
            )

        return SyncSubscription(self.run, self.run(made))

    def watch(
        self, namespace: str, process_id: str, *, after: str | None = None, state: bool = False
    ) -> Iterator[ProcessChange]:
        """Return a process as its steps are committed, as Client.watch does, for a plain `for`."""

        async def begin(client: Client) -> AsyncIterator[ProcessChange]:
            return client.watch(namespace, process_id, after=after, state=state)

        return self._each(self.run(begin))

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following(_: Client) -> T | None:
            return await anext(items, None)

        while (item := self.run(following)) is not None:
            yield item

    start = _blocking(Client.start)
    call = _blocking(Client.call)
    notify = _blocking(Client.notify)
    repair = _blocking(Client.repair)
    submit_start = _blocking(Client.submit_start)
    submit_call = _blocking(Client.submit_call)
    submit_notify = _blocking(Client.submit_notify)
    submit_repair = _blocking(Client.submit_repair)
    submit_simple_repair = _blocking(Client.submit_simple_repair)
    submit_dry_run_repair = _blocking(Client.submit_dry_run_repair)
    answer = _blocking(Client.answer)
    result = _blocking(Client.result)
    published = _blocking(Client.published)
    simple_repair = _blocking(Client.simple_repair)
    dry_run_repair = _blocking(Client.dry_run_repair)
    redo = _blocking(Client.redo)
    submit_redo = _blocking(Client.submit_redo)
    set_timer = _blocking(Client.set_timer)
    unset_timer = _blocking(Client.unset_timer)
    fire_timer = _blocking(Client.fire_timer)
    get = _blocking(Client.get)
    put = _blocking(Client.put)
    export_processes = _blocking(Client.export_processes)
    import_processes = _blocking(Client.import_processes)
    trace = _blocking(Client.trace)
    mailbox = _blocking(Client.mailbox)
    search = _blocking(Client.search)
    remove = _blocking(Client.remove)
    remove_processes = _blocking(Client.remove_processes)
    repair_all = _blocking(Client.repair_all)
    preview_repair_all = _blocking(Client.preview_repair_all)
    bulk = _blocking(Client.bulk)
    bulks = _blocking(Client.bulks)
    stop_bulk = _blocking(Client.stop_bulk)
    health = _blocking(Client.health)
    pause = _blocking(Client.pause)
    resume = _blocking(Client.resume)
    retire = _blocking(Client.retire)
    namespaces = _blocking(Client.namespaces)
    workers = _blocking(Client.workers)
    groups = _blocking(Client.groups)
    set_group_limit = _blocking(Client.set_group_limit)
    retention = _blocking(Client.retention)
    set_retention = _blocking(Client.set_retention)
    estimate_retention = _blocking(Client.estimate_retention)
    begin_retention = _blocking(Client.begin_retention)
    status = _blocking(Client.status)
    errors = _blocking(Client.errors)
    audit = _blocking(Client.audit)
    forward = _blocking(Client.forward)
    project = _blocking(Client.project)
    subscriptions = _blocking(Client.subscriptions)
    parked = _blocking(Client.parked)
    retry_parked = _blocking(Client.retry_parked)
    skip_parked = _blocking(Client.skip_parked)
    park_failing = _blocking(Client.park_failing)
    move_subscription = _blocking(Client.move_subscription)
    remove_subscription = _blocking(Client.remove_subscription)


class SyncProcessHandle(Generic[StateT]):
    """SyncClient's methods on one process, without their first two arguments; errors are the same."""

    def __init__(self, client: SyncClient, namespace: Namespace[StateT] | str, process_id: str) -> None:
        self.client = client
        self.of = namespace
        """The namespace, or its name."""
        self.process_id = process_id

    def get(
        self,
        *,
        range: HistoryRange | None = HistoryRange(),  # noqa: A002, B008 - pinned name; frozen
        timeout: Timeout = None,
    ) -> Process[StateT]:
        """Do as `get` of the client; the state is of the type that the handle's namespace declares."""
        return self.client.run(
            lambda inner: inner.process(self.of, self.process_id).get(range=range, timeout=timeout)
        )

    def watch(self, *, after: str | None = None, state: bool = False) -> Iterator[ProcessChange]:
        """Do as `watch` of the client."""
        name: Any = getattr(self.of, "name", self.of)
        return self.client.watch(name, self.process_id, after=after, state=state)

    start = _blocking_on(ProcessHandle.start)
    call = _blocking_on(ProcessHandle.call)
    notify = _blocking_on(ProcessHandle.notify)
    repair = _blocking_on(ProcessHandle.repair)
    submit_start = _blocking_on(ProcessHandle.submit_start)
    submit_call = _blocking_on(ProcessHandle.submit_call)
    submit_notify = _blocking_on(ProcessHandle.submit_notify)
    submit_repair = _blocking_on(ProcessHandle.submit_repair)
    submit_simple_repair = _blocking_on(ProcessHandle.submit_simple_repair)
    submit_dry_run_repair = _blocking_on(ProcessHandle.submit_dry_run_repair)
    result = _blocking_on(ProcessHandle.result)
    simple_repair = _blocking_on(ProcessHandle.simple_repair)
    dry_run_repair = _blocking_on(ProcessHandle.dry_run_repair)
    redo = _blocking_on(ProcessHandle.redo)
    submit_redo = _blocking_on(ProcessHandle.submit_redo)
    set_timer = _blocking_on(ProcessHandle.set_timer)
    unset_timer = _blocking_on(ProcessHandle.unset_timer)
    fire_timer = _blocking_on(ProcessHandle.fire_timer)
    put = _blocking_on(ProcessHandle.put)
    trace = _blocking_on(ProcessHandle.trace)
    mailbox = _blocking_on(ProcessHandle.mailbox)
    remove = _blocking_on(ProcessHandle.remove)


def _end(background: _Background) -> None:
    # A thread that still waited for a task would wait for ever once the loop has ended.
    asyncio.run_coroutine_threadsafe(_cancel_all(), background.loop).result()
    background.ended.set()
    background.loop.call_soon_threadsafe(background.loop.stop)
    background.thread.join()
    background.loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
