"""The blocking client: the same methods, from threads and after a fork."""

import asyncio
import gc
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import pytest

from progressor import (
    HandlerFailed,
    HistoryRange,
    InvalidRequest,
    ProcessNotFound,
    Rejected,
    ReplyTimeout,
    SetTimer,
    StorageUnavailable,
    SyncClient,
)
from progressor.client import sync
from tests.acceptance.conftest import MakeEngine, Options, of_a_client
from tests.acceptance.support import NS, Account, Act, Scripted

T = TypeVar("T")
TraceFunction = Callable[[FrameType, str, Any], Any]


@pytest.fixture
def options(mode: Options) -> Options:
    return of_a_client(mode)


@pytest.fixture
def sync_client(dsn: str, options: Options) -> Iterator[SyncClient]:
    client = SyncClient(dsn, [Scripted().namespace], **options)
    yield client
    client.close()


def in_a_child(work: Callable[[], None]) -> int:
    """Run this in a forked process; its exit status, 0 if nothing was raised and it came to an end."""
    with warnings.catch_warnings():
        # Forking with threads is what these tests are about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        try:
            work()
        except BaseException:  # noqa: BLE001 - nothing of pytest may run in the child
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking code beside the engine's loop."""
    return await asyncio.to_thread(work)


async def test_every_method(engine: MakeEngine, sync_client: SyncClient) -> None:
    """start, call, notify, repair, simple_repair, get, put, trace, search, remove and health block."""
    await engine(Scripted().namespace)

    def work() -> None:
        client = sync_client
        assert client.start(NS, "p", Act(add=1, emit="opened"), metadata={"k": 1}) == 1
        assert client.call(NS, "p", "act", Act(add=1), idempotency_key="k") == 2
        client.notify(NS, "p", "act", Act(add=1))
        assert client.call(NS, "p", "act", Act(add=1)) == 4
        with pytest.raises(Rejected):
            client.call(NS, "p", "act", Act(reject="no"))
        with pytest.raises(HandlerFailed):
            client.call(NS, "p", "act", Act(fail="oops"))
        assert client.repair(NS, "p", Act(add=1)) == 5
        with pytest.raises(HandlerFailed):
            client.call(NS, "p", "act", Act(fail="oops"))
        client.simple_repair(NS, "p")
        assert client.get(NS, "p").state == Account(balance=5)
        assert client.get(NS, "p", range=HistoryRange(limit=1)).history[0].name == "opened"
        assert len(client.trace(NS, "p")) == 9
        client.put(NS, "q", state=Account(), action=SetTimer(after=timedelta(hours=1)))
        assert [p.process_id for p in client.search(metadata={"k": 1}).items] == ["p"]
        assert client.health().ok
        client.remove(NS, "p")
        with pytest.raises(ProcessNotFound):
            client.get(NS, "p")

    await in_thread(work)


async def test_handles(engine: MakeEngine, sync_client: SyncClient) -> None:
    """`client.process(namespace, id)` has the methods without the first two arguments."""
    await engine(Scripted().namespace)

    def work() -> None:
        process = sync_client.process(NS, "p")
        assert process.start(Act(add=1)) == 1
        assert process.call("act", {"add": 1}) == 2
        process.notify("act", Act(add=1))
        with pytest.raises(HandlerFailed):
            process.call("act", Act(fail="oops"))
        process.simple_repair()
        with pytest.raises(HandlerFailed):
            process.call("act", Act(fail="oops"))
        assert process.repair(Act()) == 3
        assert process.get().state.balance == 3
        assert process.trace()[0].task_type == "init"
        process.remove()
        process.put(state=Account(balance=1))
        assert process.get().state.balance == 1

    await in_thread(work)


async def test_many_threads_share_a_client(engine: MakeEngine, sync_client: SyncClient) -> None:
    """Threads ask at the same time through one client, which connects once; each gets its own answer."""
    await engine(Scripted().namespace)

    def work() -> None:
        with ThreadPoolExecutor(8) as threads:
            started = threads.map(lambda n: sync_client.start(NS, f"p{n}", Act(add=n)), range(16))
            assert list(started) == list(range(16))
            sync_client.start(NS, "shared", Act())
            adding = threads.map(lambda _: sync_client.call(NS, "shared", "act", Act(add=1)), range(32))
            assert sorted(adding) == list(range(1, 33))

    await in_thread(work)


async def test_errors_of_its_own_making(engine: MakeEngine, sync_client: SyncClient) -> None:
    """Bad input and a reply that does not come raise in the calling thread, as they do in Client."""
    scripted = Scripted()
    await engine(scripted.namespace)

    def work() -> str:
        with pytest.raises(InvalidRequest):
            sync_client.start(NS, "")
        sync_client.start(NS, "p", Act())
        with pytest.raises(ReplyTimeout) as caught:
            sync_client.call(NS, "p", "act", Act(add=1, gate="g"), timeout=2)
        return caught.value.idempotency_key

    key = await in_thread(work)
    scripted.gates["g"].open()
    act = Act(add=1, gate="g")
    assert await in_thread(lambda: sync_client.call(NS, "p", "act", act, idempotency_key=key)) == 1


async def test_what_ends_the_loop_ends_one_request(
    engine: MakeEngine, dsn: str, options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """A codec that exits is heard of by its caller, and by the log; the next request goes on."""

    class Exits:
        exits = True

        def encode(self, data: bytes) -> bytes:
            if self.exits:
                raise SystemExit("no key")
            return data

        def decode(self, data: bytes) -> bytes:
            return data

    await engine(Scripted().namespace)

    def work() -> None:
        codec = Exits()
        with SyncClient(dsn, codec=codec, **options) as client:
            with pytest.raises(SystemExit):
                client.start(NS, "p", Act(add=1))
            codec.exits = False
            client.start(NS, "p", Act(add=1))

    await in_thread(work)
    assert [record.part for record in caplog.records if record.levelname == "ERROR"] == ["client loop"]


async def test_a_closed_client_says_so(engine: MakeEngine, dsn: str, options: Options) -> None:
    """`with SyncClient(…)` closes its connections, for good; closing twice is closing once."""
    await engine(Scripted().namespace)

    def work() -> None:
        client = SyncClient(dsn, **options)
        with client:
            client.start(NS, "p", Act(add=1))
        with pytest.raises(StorageUnavailable, match=r"^the client is closed$"):
            client.get(NS, "p")
        client.close()

    await in_thread(work)


async def test_what_is_asked_while_the_client_closes_ends(
    engine: MakeEngine, dsn: str, options: Options
) -> None:
    """Threads that ask while another one closes get an answer or an error, and none waits for ever."""
    await engine(Scripted().namespace)

    def ask(client: SyncClient) -> bool:
        while True:
            try:
                client.health()
                client.get(NS, "p")
            except StorageUnavailable:
                return True

    def work() -> None:
        client = SyncClient(dsn, **options)
        client.start(NS, "p", Act())
        with ThreadPoolExecutor(4) as threads:
            asking = [threads.submit(ask, client) for _ in range(4)]
            client.get(NS, "p")
            client.close()
            assert all(each.result(20) for each in asking)

    await in_thread(work)
    gc.collect()


async def test_after_a_fork(engine: MakeEngine, sync_client: SyncClient) -> None:
    """A client used before a fork works on in the parent, and in the child with connections of its own."""
    await engine(Scripted().namespace)

    def in_child() -> None:
        assert sync_client.call(NS, "p", "act", Act(add=1)) == 2
        assert sync_client.process(NS, "p").get().state.balance == 2

    def work() -> None:
        assert sync_client.start(NS, "p", Act(add=1)) == 1
        assert in_a_child(in_child) == 0
        assert sync_client.call(NS, "p", "act", Act(add=1)) == 3

    await in_thread(work)


async def test_after_a_fork_that_python_does_not_hear_of(
    engine: MakeEngine, sync_client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in C that forks, such as uWSGI, need not call Python's hooks: the pid tells it."""
    await engine(Scripted().namespace)

    def work() -> None:
        assert sync_client.start(NS, "p", Act(add=1)) == 1
        parent = sync_client._here
        with monkeypatch.context() as child, parent.lock:
            child.setattr(os, "getpid", lambda: 0)
            with ThreadPoolExecutor() as others:
                # Another thread than the one that holds the parent's lock.
                assert others.submit(sync_client.call, NS, "p", "act", Act(add=1)).result(60) == 2
            assert sync_client._here.background is not parent.background
            sync_client.close()
        assert parent.background is not None
        assert not parent.background.loop.is_closed()

    await in_thread(work)


def test_a_child_is_not_warned_of_what_its_parent_left_open(dsn: str) -> None:
    """The parent's client is not the child's to close."""
    script = f"""
import os
from progressor import SyncClient

client = SyncClient({dsn!r})
print(client.health().ok, flush=True)
if os.fork():
    print(os.wait()[1])
    client.close()
"""
    ran = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("True\n0\n", "")


class Silent:
    """A server that lets the first connection wait for ever, and ends every other one."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = f"postgresql://nobody@127.0.0.1:{self._listener.getsockname()[1]}/none"
        self._held: list[socket.socket] = []
        self.reached = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            self._held.append(self._listener.accept()[0])
            self.reached.set()
            while True:
                self._listener.accept()[0].close()

    def reach(self) -> None:
        """Be the first."""
        socket.create_connection(self._listener.getsockname()).close()
        assert self.reached.wait(20)

    def end(self) -> None:
        # Closing alone does not wake who accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._held):
            each.close()


def test_forked_while_another_thread_connects() -> None:
    """The child connects by itself; it waits for nothing that only the parent's threads could end."""
    silent = Silent()
    client = SyncClient(silent.dsn)

    def ask() -> None:
        with pytest.raises(StorageUnavailable):
            client.get(NS, "p")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert silent.reached.wait(20)
        assert in_a_child(ask) == 0
    finally:
        silent.end()
        asking.join(20)
        client.close()


def test_forked_while_another_thread_is_in_the_middle() -> None:
    """Whatever the parent's threads hold of a client, the child's client is as new."""
    silent = Silent()
    client = SyncClient(silent.dsn)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with client._here.lock:
            held.set()
            done.wait(60)

    def ask() -> None:
        with pytest.raises(StorageUnavailable):
            client.get(NS, "p")

    holding = threading.Thread(target=hold)
    holding.start()
    silent.reach()
    try:
        assert held.wait(20)
        assert in_a_child(ask) == 0
    finally:
        done.set()
        holding.join()
        silent.end()
        client.close()


def interrupted(
    work: Callable[[], T], on_signal: Callable[[], object], *, at: int | None = None, of: str = ""
) -> T:
    """Run this with a signal at each of its lines, or at one alone, in any module or in that file."""
    lines = itertools.count()

    def interrupt(frame: FrameType, *_: object) -> TraceFunction:
        if frame.f_code.co_filename.startswith(of) and (next(lines) == at or at is None):
            signal.raise_signal(signal.SIGUSR1)
        return interrupt

    signal.signal(signal.SIGUSR1, lambda *_: on_signal())
    sys.settrace(interrupt)
    try:
        return work()
    finally:
        sys.settrace(None)


async def _answer(_: object) -> int:
    await asyncio.sleep(0)
    return 1


def _loops() -> int:
    return sum(each.name == "progressor client loop" for each in threading.enumerate())


def test_used_in_a_signal_handler_while_the_same_thread_uses_it() -> None:
    """Whatever line the signal interrupts, both calls are answered, by one event loop."""

    def in_child() -> None:
        client, answered = SyncClient("postgresql://nobody@127.0.0.1:1/none"), list[int]()
        before = _loops()
        for _ in range(2):
            one = interrupted(lambda: client.run(_answer), lambda: answered.append(client.run(_answer)))
            assert one == 1
        assert len(answered) > 20
        assert set(answered) == {1}
        assert _loops() == before + 1

    assert in_a_child(in_child) == 0


def test_a_call_ends_while_a_signal_handler_waits_for_another() -> None:
    """Nothing that the interrupted thread holds keeps the event loop from going on."""

    async def waits(_: object) -> int:
        # For the handler, or for a while if its line comes after the wait.
        asyncio.get_running_loop().call_later(0.02, begun.set)
        await begun.wait()
        return 1

    async def ends(_: object) -> int:
        begun.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return 1

    def in_child() -> None:
        nonlocal begun
        client = SyncClient("postgresql://nobody@127.0.0.1:1/none")
        assert client.run(_answer) == 1
        for line in range(100):
            begun = asyncio.Event()
            assert interrupted(lambda: client.run(waits), lambda: client.run(ends), at=line) == 1

    begun = asyncio.Event()
    assert in_a_child(in_child) == 0


def test_closed_in_a_signal_handler_while_the_same_thread_uses_it() -> None:
    """Whatever line the signal interrupts, the call is answered or refused, and no event loop is left."""

    def in_child() -> None:
        before = _loops()
        for line in range(60):
            client = SyncClient("postgresql://nobody@127.0.0.1:1/none")
            ask = partial(client.run, _answer)
            with suppress(StorageUnavailable):
                assert interrupted(ask, client.close, at=line, of=sync.__file__) == 1
            client.close()
            assert _loops() == before

    assert in_a_child(in_child) == 0
