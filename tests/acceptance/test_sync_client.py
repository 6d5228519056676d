"""The blocking client: the same methods, from threads and after a fork."""

import asyncio
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import pytest

from progressor import (
    HandlerFailed,
    HistoryRange,
    InvalidRequest,
    ProcessNotFound,
    Rejected,
    ReplyTimeout,
    SetTimer,
    SyncClient,
)
from tests.acceptance.conftest import MakeEngine, Options
from tests.acceptance.support import NS, Account, Act, Scripted

T = TypeVar("T")


@pytest.fixture
def options(mode: Options) -> Options:
    return {name: value for name, value in mode.items() if name != "scan_interval"}


@pytest.fixture
def sync_client(dsn: str, options: Options) -> Iterator[SyncClient]:
    client = SyncClient(dsn, [Scripted().namespace], **options)
    yield client
    client.close()


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
            sync_client.call(NS, "p", "act", Act(add=1, gate="g"), timeout=0.5)
        return caught.value.idempotency_key

    key = await in_thread(work)
    scripted.gates["g"].open()
    act = Act(add=1, gate="g")
    assert await in_thread(lambda: sync_client.call(NS, "p", "act", act, idempotency_key=key)) == 1


async def test_a_closed_client_connects_again(engine: MakeEngine, dsn: str, options: Options) -> None:
    """`with SyncClient(…)` closes its connections; used again it makes new ones."""
    await engine(Scripted().namespace)

    def work() -> None:
        client = SyncClient(dsn, **options)
        with client:
            client.start(NS, "p", Act(add=1))
        assert client.get(NS, "p").state["balance"] == 1
        client.close()
        client.close()

    await in_thread(work)


async def test_after_a_fork(engine: MakeEngine, sync_client: SyncClient) -> None:
    """A client used before a fork works on in the parent, and in the child with connections of its own."""
    await engine(Scripted().namespace)

    def in_child() -> None:
        assert sync_client.call(NS, "p", "act", Act(add=1)) == 2
        assert sync_client.process(NS, "p").get().state.balance == 2

    def work() -> None:
        assert sync_client.start(NS, "p", Act(add=1)) == 1
        with warnings.catch_warnings():
            # Forking with threads is what this test is about.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                in_child()
            except BaseException:  # noqa: BLE001 - nothing of pytest may run in the child
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert sync_client.call(NS, "p", "act", Act(add=1)) == 3

    await in_thread(work)
