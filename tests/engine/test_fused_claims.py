"""Requests from elsewhere that are claimed, run and saved in one transaction, and what may come between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest

from progressor import Client, HandlerFailed, Process, ProcessBroken, ProcessNotFound, Reject
from progressor.handlers import handler_profile
from progressor.storage.postgres import session_setup
from progressor.storage.postgres.pipeline import Session
from progressor.worker import started_step
from tests.engine.test_fusing import Commits, Served
from tests.support import NS, check_invariants, eventually

pytestmark = pytest.mark.filterwarnings("error")


class Case:
    """An engine, and a client of another process."""

    def __init__(self, served: Served, client: Client) -> None:
        self.served = served
        self.client = client

    async def call(self, name: str = "add", process_id: str = "p1", **options: Any) -> Any:
        return await self.client.call(NS, process_id, name, **options)

    async def of_trace(self, process_id: str = "p1") -> list[tuple[str, int]]:
        """The status and the attempts of each call so far."""
        tasks = await self.client.trace(NS, process_id)
        return [(task.status.value, task.attempts_count) for task in tasks[1:]]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch, "save_")


@pytest.fixture
async def case(dsn: str) -> AsyncIterator[Case]:
    served = Served(dsn)
    async with served.engine, Client(dsn) as client:
        for process_id in ("p1", "p2", "p3"):
            await served.start(process_id)
        yield Case(served, client)
        served.gate.set()
        await served.all_slots_are_free()
    check_invariants(dsn)


async def test_it_ends_with_its_claim(case: Case, commits: Commits) -> None:
    """One commit for each, whatever it is; nobody sees it running."""
    assert [await case.call() for _ in range(3)] == [1, 2, 3]
    assert commits.made == 3
    await case.client.start(NS, "p9")
    assert commits.made == 4
    await case.client.notify(NS, "p9", "add")
    await eventually(lambda: commits.made == 5, "the notice too")
    assert await case.call(process_id="p9") == 2


async def test_one_that_waits_goes_on(case: Case, commits: Commits) -> None:
    """It is committed as running, beside others that end; it runs once."""
    waiting = asyncio.create_task(case.call("wait"))
    await eventually(lambda: case.served.begun == ["p1"], "it has begun")
    others = [case.call(process_id=each) for each in ("p2", "p3", "p2")]
    assert sorted(await asyncio.gather(*others)) == [1, 1, 2]
    assert await case.of_trace() == [("running", 0)]
    case.served.gate.set()
    assert await waiting == 1
    assert case.served.begun.count("p1") == 1


async def test_each_kind_of_end(case: Case) -> None:
    """What does not end well is saved by itself, and what follows at once runs in the same slot."""
    ends: dict[str, Any] = {
        "p1": lambda process: process.set_timer(after=timedelta(0)),
        "p2": lambda _: (_ for _ in ()).throw(Reject("no")),
        "p3": lambda _: 1 // 0,
    }
    fired = asyncio.Event()

    @case.served.engine.namespaces[0].timeout
    async def fire(process: Process[Any]) -> None:
        fired.set()

    case.served.act = lambda process: ends[process.process_id](process)
    outcomes = await asyncio.gather(*(case.call(process_id=each) for each in ends), return_exceptions=True)
    assert outcomes[0] == 1
    assert [type(each).__name__ for each in outcomes[1:]] == ["Rejected", "HandlerFailed"]
    async with asyncio.timeout(20):
        await fired.wait()
    with pytest.raises(ProcessBroken):
        await case.call(process_id="p3")


async def test_the_next_call_follows_in_its_slot(case: Case, commits: Commits) -> None:
    """Calls that wait on one process run in their order, each once."""
    waiting = asyncio.create_task(case.call("wait"))
    await eventually(lambda: case.served.begun == ["p1"], "it has begun")
    asked = [asyncio.create_task(case.call()) for _ in range(5)]
    await eventually(lambda: case.served.pool.busy == 1, "they wait")
    case.served.gate.set()
    assert await waiting == 1
    assert sorted(await asyncio.gather(*asked)) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["add", "wait"])
async def test_a_transaction_that_failed(case: Case, commits: Commits, name: str) -> None:
    """Nothing was committed: the task is claimed anew, and its handler is not run again."""
    commits.refused = 1
    beside = asyncio.create_task(case.call(process_id="p2"))
    case.served.gate.set()
    assert await case.call(name) == 1
    assert await beside == 1
    assert sorted(case.served.begun) == ["p1", "p2"]
    assert await case.call() == 2


@pytest.mark.parametrize("name", ["add", "wait"])
async def test_a_lost_answer(case: Case, commits: Commits, name: str) -> None:
    """It was committed: the caller gets its answer, and the handler is not run again."""
    commits.lost = 1
    beside = asyncio.create_task(case.call(process_id="p2"))
    case.served.gate.set()
    assert await case.call(name, timeout=20) == 1
    assert await beside == 1
    assert sorted(case.served.begun) == ["p1", "p2"]
    assert await case.of_trace() == [("finished", 0)]


async def test_a_lost_answer_is_announced(dsn: str, commits: Commits) -> None:
    """The hint was lost with the connection, so the caller elsewhere gets another."""
    served = Served(dsn)
    async with served.engine, Client(dsn, reply_poll_interval=timedelta(minutes=1)) as client:
        await served.start("p1")
        commits.lost = 1
        assert await client.call(NS, "p1", "add", timeout=20) == 1


async def test_a_lost_answer_before_a_continuation(case: Case, commits: Commits) -> None:
    """What follows the step, which is in the hands of this worker, is run."""
    case.served.act = lambda process: process.set_timer(after=timedelta(0)) if not fired.is_set() else None
    fired = asyncio.Event()

    @case.served.engine.namespaces[0].timeout
    async def fire(process: Process[Any]) -> None:
        fired.set()

    commits.lost = 1
    assert await case.call() == 1
    async with asyncio.timeout(20):
        await fired.wait()


async def test_a_lost_answer_and_a_later_task(
    case: Case, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated claim takes what came since: it runs only when it is known what became of the first."""
    storage = case.served.pool._storage
    search, look = storage.search, storage.saved_before
    begun: list[str] = []

    async def search_later(*args: Any, **options: Any) -> Any:
        for _ in range(2):
            await case.client.notify(NS, "p1", "add")
        return await search(*args, **options)

    async def look_up(step: Any) -> Any:
        begun.extend(case.served.begun)
        return await look(step)

    monkeypatch.setattr(storage, "search", search_later)
    monkeypatch.setattr(storage, "saved_before", look_up)
    commits.lost = 1
    assert await case.call() == 1
    await eventually(lambda: len(case.served.begun) == 3, "what came since ran")
    assert begun == ["p1"]
    assert await case.call() == 4


async def test_a_process_that_changed_meanwhile(
    case: Case, commits: Commits, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the handler decided was for another state: it runs again."""
    commits.refused = 1
    roll_back = Session.roll_back

    async def overtaken(session: Session) -> None:
        await roll_back(session)
        with psycopg.connect(dsn) as other:
            other.execute(
                "UPDATE progressor.processes SET aux_state = %s WHERE process_id = 'p1'", [b'{"calls":7}']
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "roll_back", overtaken)
        assert await case.call() == 8
    assert case.served.begun == ["p1", "p1"]
    assert "transaction lost, handler runs again" in caplog.text


async def test_one_that_may_expire_begins_behind_its_claim(case: Case, dsn: str) -> None:
    """Its task is committed as running before its handler begins: no claim that is lost lets it expire."""
    seen: list[int] = []

    def look(_: Process[Any]) -> None:
        with psycopg.connect(dsn) as other:
            seen.extend(number for (number,) in other.execute("SELECT count(*) FROM progressor.running"))

    case.served.act = look
    assert await case.call() == 1
    assert await case.call(expires=timedelta(hours=1)) == 2
    assert seen == [0, 1]


async def test_a_result_that_is_refused(case: Case) -> None:
    """It breaks its process alone: the others of the claim are saved."""
    case.served.act = lambda process: (
        process.metadata.update(text="\0") if process.process_id == "p1" else None
    )
    outcomes = await asyncio.gather(
        *(case.call(process_id=each) for each in ("p1", "p2", "p3")), return_exceptions=True
    )
    assert isinstance(outcomes[0], HandlerFailed)
    assert outcomes[1:] == [1, 1]
    assert sorted(case.served.begun) == ["p1", "p2", "p3"]


async def test_a_large_value_beside_small_ones(case: Case, dsn: str) -> None:
    """It is read after the commit, as that of any claim."""
    with psycopg.connect(dsn) as other:
        other.execute(
            "UPDATE progressor.processes SET aux_state = %s WHERE process_id = 'p1'",
            [b'{"calls":0,"text":"' + b"x" * 100_000 + b'"}'],
        )
    asked = [case.call(process_id=each) for each in ("p1", "p2", "p3")]
    assert await asyncio.gather(*asked) == [1, 1, 1]


async def test_a_stop_amid_the_transaction(dsn: str, commits: Commits) -> None:
    """A worker that gives up leaves the task to others, who have it at once."""
    served = Served(dsn, stop_grace=timedelta(milliseconds=1))
    async with Client(dsn) as client:
        async with served.engine:
            await served.start("p1")
            commits.gate.clear()
            commits.reached.clear()
            asked = asyncio.create_task(client.call(NS, "p1", "add", timeout=30))
            await commits.reached.wait()
        commits.gate.set()
        other = Served(dsn)
        async with other.engine:
            assert await asked == 1
            await other.all_slots_are_free()
        assert (served.begun, other.begun) == (["p1"], ["p1"])
    check_invariants(dsn)


async def test_a_handler_that_holds_the_loop_until_the_transaction_is_lost(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs once all the same, and so do the others of the claim; it is never fused again."""
    monkeypatch.setitem(cast("dict[str, Any]", session_setup.BOUNDED_SESSION), "idle_timeout", "100ms")
    monkeypatch.setattr(started_step, "LOSES_TRANSACTIONS", 0.1)
    served = Served(dsn)
    async with served.engine, Client(dsn) as client:
        for process_id in ("p1", "p2"):
            await served.start(process_id)
        served.act = lambda process: time.sleep(0.5) if process.process_id == "p1" else None
        asked = [client.call(NS, each, "add") for each in ("p1", "p2")]
        assert await asyncio.gather(*asked) == [1, 1]
        assert sorted(served.begun) == ["p1", "p2"]
        assert "it is no longer fused" in caplog.text
        await served.all_slots_are_free()
    check_invariants(dsn)


async def test_a_removal_and_a_message(case: Case) -> None:
    """Neither ends alone: each is saved by itself, with all that it does."""
    acts: dict[str, Callable[[Process[Any]], None]] = {
        "p1": lambda process: process.remove(),
        "p2": lambda process: process.send(NS, "p3", "add"),
    }
    case.served.act = lambda process: acts.get(process.process_id, lambda _: None)(process)
    asked = [case.call(process_id=each) for each in ("p1", "p2")]
    assert await asyncio.gather(*asked) == [1, 1]
    with pytest.raises(ProcessNotFound):
        await case.client.get(NS, "p1")
    await eventually(lambda: case.served.begun.count("p3") == 1, "the message is delivered")


async def test_what_waits_is_claimed_the_ordinary_way(
    dsn: str, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that was seen to wait is not tried so, until most of a claim are others again."""
    # However slow the machine is.
    monkeypatch.setattr(handler_profile, "MOST_COMPUTED", 3600.0)
    served = Served(dsn, fuse="learned")
    async with served.engine, Client(dsn) as client:
        await served.start("p1")
        for count in range(1, 4):
            served.gate.clear()
            asked = asyncio.create_task(client.call(NS, "p1", "wait"))
            await eventually(lambda count=count: len(served.begun) == count, "it has begun")  # type: ignore[misc]
            served.gate.set()
            await asked
        assert commits.made == 0
        for _ in range(3):
            await client.call(NS, "p1", "add")
        assert commits.made > 0
        await served.all_slots_are_free()
