"""A flight of requests that run behind their locks: its slots come back, and no handler is forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest
from prometheus_client import REGISTRY

from progressor import (
    Engine,
    HandlerFailed,
    Namespace,
    Process,
    Reject,
    Rejected,
    StorageUnavailable,
    metrics as published,
)
from progressor.client.dispatch import fused as fusing
from progressor.handlers.handler_profile import MOST_COMPUTED
from progressor.loggers import message_of
from progressor.model import Decision, TaskType
from progressor.storage import Claimed, Fused, Prepared, Request
from progressor.storage.postgres import session_setup
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from progressor.worker import started_step
from progressor.worker.pool import Pool
from tests.support import NS, Tables, check_invariants, eventually, request

pytestmark = pytest.mark.filterwarnings("error")


class Commits:
    """Stands before the commits that save steps by one of these statements, and behind them.

    `made` counts them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, saving: str = "fused") -> None:
        self.reached, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.refused = self.lost = self.made = 0
        commit = Session.commit

        async def gated(session: Session, statements: Transaction, hints: Hints | None = None) -> Results:
            if not any(each.startswith(saving) for each in statements):
                return await commit(session, statements, hints)
            self.made += 1
            self.reached.set()
            await self.gate.wait()
            if self.refused:
                self.refused -= 1
                raise psycopg.OperationalError("the connection was lost before COMMIT")
            told = await commit(session, statements, hints)
            if self.lost:
                self.lost -= 1
                raise psycopg.OperationalError("the connection was lost at COMMIT")
            return told

        monkeypatch.setattr(Session, "commit", gated)


class Served:
    """A namespace whose handlers do as the test says, and the engine that runs it."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate, self.let_go = asyncio.Event(), asyncio.Event()
        self.let_go.set()
        self.act: Callable[[Process[Any]], Any] = lambda process: None
        ns = Namespace(NS, concurrency=8, step_timeout=options.pop("step_timeout", timedelta(seconds=20)))

        @ns.init
        async def start(process: Process[Any]) -> None:
            process.state = {"calls": 0}

        @ns.call
        async def add(process: Process[Any]) -> int:
            self.begun.append(process.process_id)
            self.act(process)
            process.state["calls"] += 1
            return int(process.state["calls"])

        @ns.call
        async def wait(process: Process[Any]) -> int:
            self.begun.append(process.process_id)
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                # It has something to end first.
                await self.let_go.wait()
                raise
            finally:
                self.ended.append(process.process_id)
            process.state["calls"] += 1
            return int(process.state["calls"])

        # No claim takes slots because time has passed: a flight needs them.
        chosen = {
            "fuse": "always",
            "stop_grace": timedelta(seconds=20),
            "zombie_collector": False,
            "scan_interval": timedelta(hours=1),
        }
        self.engine = Engine(dsn, [ns], **{**chosen, **options})

    @property
    def pool(self) -> Pool:
        return self.engine.pools[NS]

    async def call(self, name: str, process_id: str = "p1", **options: Any) -> Any:
        return await self.engine.client.call(NS, process_id, name, **options)

    async def start(self, process_id: str) -> None:
        """Start a process once nothing is being claimed: a claim takes slots, which a flight needs."""
        await eventually(lambda: self.pool.is_idle, "its slots are free")
        await self.engine.client.start(NS, process_id)

    async def all_slots_are_free(self) -> None:
        await eventually(lambda: self.pool.free == self.pool.size, "all slots are free")
        assert self.pool._budget.used == 0


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


@pytest.fixture
async def served(dsn: str) -> AsyncIterator[Served]:
    served = Served(dsn)
    async with served.engine:
        await served.start("p1")
        yield served
        served.gate.set()
        await served.all_slots_are_free()
    check_invariants(dsn)


# A transaction that fails, or whose answer is lost.


@pytest.mark.parametrize("name", ["add", "wait"])
async def test_a_lost_answer_that_nobody_waits_for(served: Served, commits: Commits, name: str) -> None:
    """Its caller has gone: what was committed into the hands of this worker is brought to its end."""
    commits.lost = 1
    commits.gate.clear()
    asked = asyncio.create_task(served.call(name))
    await commits.reached.wait()
    asked.cancel()
    await asyncio.wait({asked})
    commits.gate.set()
    served.gate.set()
    await served.all_slots_are_free()
    (_, task) = await served.engine.client.trace(NS, "p1")
    assert (task.status.value, task.response, served.begun) == ("finished", 1, ["p1"])


async def test_a_transaction_that_failed(served: Served, commits: Commits) -> None:
    """Nothing was committed: the handler has ended, and what it decided is saved in another transaction."""
    commits.refused = 1
    assert await served.call("add") == 1
    assert served.begun == ["p1"]
    assert await served.call("add") == 2


async def test_a_start_whose_transaction_failed(served: Served, commits: Commits) -> None:
    """The process that is made in its place is as new."""
    commits.refused = 1
    await served.start("p2")
    assert (await served.engine.client.get(NS, "p2")).state == {"calls": 0}


async def test_a_transaction_that_failed_under_a_handler(
    served: Served, commits: Commits, caplog: pytest.LogCaptureFixture
) -> None:
    """Its handler runs again once the one that went on has ended, and the log names it."""
    commits.refused = 1
    again = published.RUN_AGAIN.labels(NS)._value
    before = again.get()
    asked = asyncio.create_task(served.call("wait"))
    await eventually(lambda: len(served.begun) == 2, "it is run again")
    assert served.ended == ["p1"]
    served.gate.set()
    assert await asked == 1
    assert await served.call("add") == 2
    (line,) = [record for record in caplog.records if record.name == "progressor.fusing"]
    said = vars(line)
    assert message_of(line) == "transaction lost, handler runs again"
    assert (said["namespace"], said["process_id"], said["handler"]) == (NS, "p1", "wait")
    assert again.get() == before + 1


async def test_a_process_that_changed_after_a_transaction_that_failed(
    served: Served, commits: Commits, dsn: str
) -> None:
    """What the handler decided was for another state: it runs again."""
    commits.refused = 1
    commits.reached.clear()
    commits.gate.clear()
    asked = asyncio.create_task(served.call("add"))
    await commits.reached.wait()
    roll_back = Session.roll_back

    async def overtaken(session: Session) -> None:
        await roll_back(session)
        with psycopg.connect(dsn) as other:
            other.execute("UPDATE progressor.processes SET aux_state = %s", [b'{"calls":7}'])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "roll_back", overtaken)
        commits.gate.set()
        assert await asked == 8
    assert served.begun == ["p1", "p1"]


async def test_a_handler_that_holds_the_loop_until_its_transaction_is_lost(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL ends a transaction that does nothing: it runs once all the same, and never so again."""
    monkeypatch.setitem(cast("dict[str, Any]", session_setup.BOUNDED_SESSION), "idle_timeout", "100ms")
    monkeypatch.setattr(started_step, "LOSES_TRANSACTIONS", 0.1)
    served = Served(dsn)
    served.act = lambda _: time.sleep(0.5)
    async with served.engine:
        await served.start("p1")
        barred, fused = published.FUSED_BARRED.labels(NS)._value, published.FUSED.labels(NS, "call")._value
        before = barred.get(), fused.get()
        assert await served.call("add") == 1
        assert served.begun == ["p1"]
        assert (barred.get(), fused.get()) == (before[0] + 1, before[1])
        # A start that took as long is named too.
        (line,) = [
            record
            for record in caplog.records
            if record.name == "progressor.fusing" and vars(record)["handler"] == "add"
        ]
        said = vars(line)
        assert message_of(line) == (
            "handler held the event loop until its transaction was lost, it is no longer fused"
        )
        assert (said["namespace"], said["process_id"], said["handler"]) == (NS, "p1", "add")
        assert said["seconds"] >= 0.5
        served.act = lambda _: None
        assert await served.call("add") == 2
        assert (barred.get(), fused.get()) == (before[0] + 1, before[1])
    check_invariants(dsn)


async def test_a_handler_that_does_not_end(served: Served, commits: Commits) -> None:
    """Cancelled, it goes on: its own process waits for it, and nobody else does."""
    for process_id in ("p2", "p3"):
        await served.start(process_id)
    served.let_go.clear()
    commits.refused = 1
    waits, adds = (asyncio.create_task(served.call(*each)) for each in (("wait", "p2"), ("add", "p3")))
    assert await adds == 1
    assert served.begun.count("p2") == 1
    served.let_go.set()
    await eventually(lambda: served.begun.count("p2") == 2, "it is run again")
    assert served.ended == ["p2"]
    served.gate.set()
    assert await waits == 1


# The stop.


async def test_a_stop_amid_a_flight(dsn: str, commits: Commits) -> None:
    """It waits for the commit, and for what goes on after it."""
    served = Served(dsn)
    async with served.engine:
        await served.start("p1")
        await served.start("p2")
        commits.reached.clear()
        commits.gate.clear()
        asked = [asyncio.create_task(served.call(*each)) for each in (("add", "p1"), ("wait", "p2"))]
        await commits.reached.wait()
        stopping = asyncio.create_task(served.engine.stop())
        await eventually(lambda: not served.pool.is_open, "the stop has begun")
        commits.gate.set()
        served.gate.set()
        assert await asyncio.gather(*asked) == [1, 1]
        await stopping
    check_invariants(dsn)


async def test_a_stop_that_gives_a_flight_up(dsn: str, tables: Tables, commits: Commits) -> None:
    """Nothing of it is committed, its handler is cancelled, and its callers are told."""
    served = Served(dsn, stop_grace=timedelta(seconds=0.1))
    async with served.engine:
        await served.start("p1")
        commits.reached.clear()
        commits.gate.clear()
        asked = asyncio.create_task(served.call("wait"))
        await commits.reached.wait()
        await served.engine.stop()
        with pytest.raises(StorageUnavailable, match="same key"):
            await asked
        await eventually(lambda: served.ended == ["p1"], "the handler has ended")
        await served.all_slots_are_free()
        assert len(tables.tasks()) == 1
    check_invariants(dsn)


# Handlers that fail.


async def test_a_handler_that_raises(served: Served) -> None:
    """It breaks its process, as elsewhere."""

    def act(_: Process[Any]) -> None:
        raise KeyError("a defect of theirs")

    served.act = act
    with pytest.raises(HandlerFailed, match="KeyError"):
        await served.call("add")
    assert (await served.engine.client.get(NS, "p1")).status.value == "error"


async def test_a_handler_that_rejects(served: Served) -> None:
    """Its caller is told, and the process lives on."""

    def act(_: Process[Any]) -> None:
        raise Reject("no funds", left=3)

    served.act = act
    with pytest.raises(Rejected) as told:
        await served.call("add")
    assert (told.value.reason, told.value.details) == ("no funds", {"left": 3})
    served.act = lambda _: None
    assert await served.call("add") == 1


async def test_a_handler_that_runs_out_of_time(dsn: str) -> None:
    """Its time runs from when it began, before its task was committed."""
    served = Served(dsn, step_timeout=timedelta(seconds=0.2))
    async with served.engine:
        await served.start("p1")
        with pytest.raises(HandlerFailed, match="StepTimeout"):
            await served.call("wait")
        await served.all_slots_are_free()
    check_invariants(dsn)


# Which requests are run so.


async def test_what_computes_long_is_prepared(dsn: str) -> None:
    """What was run once is known; what then computed for long is not run behind a lock."""
    served = Served(dsn, fuse="learned")
    async with served.engine:
        fused = published.FUSED.labels(NS, "call")._value
        profile = served.engine.namespaces[0].profile_of(TaskType.CALL, "add")
        assert profile is not None
        await served.start("p1")
        for seconds, more in ((0.0, 0), (0.0, 1), (MOST_COMPUTED * 2, 0)):
            profile.seconds, before = seconds, fused.get()
            await served.call("add")
            assert fused.get() == before + more
    check_invariants(dsn)


async def test_what_computes_too_long_together_is_prepared(dsn: str) -> None:
    """The requests of a flight have a budget; what is beyond it has no slot in it."""
    served = Served(dsn, fuse="learned")
    async with served.engine:
        await eventually(lambda: served.pool.is_idle, "nothing waits")
        profile = served.engine.namespaces[0].profile_of(TaskType.CALL, "add")
        assert profile is not None
        profile.seconds, profile.was_run = MOST_COMPUTED, True
        asked = [request(f"p{number}", name="add") for number in range(6)]
        most = int(started_step.MOST_TOGETHER / MOST_COMPUTED)

        class Flight:
            held: tuple[Claimed, ...] = ()

            async def commit(self, decisions: Sequence[Decision | None]) -> Sequence[Fused]:
                assert decisions == ()
                return [None] * most

        @asynccontextmanager
        async def fuse(requests: Sequence[Request]) -> AsyncIterator[Any]:
            assert [each.process_id for each in requests] == [each.process_id for each in asked[:most]]
            assert served.pool.free == served.pool.size - most
            yield Flight()

        async def prepare(requests: Sequence[Request]) -> Sequence[Prepared]:
            raise AssertionError(f"prepared by the flight: {requests}")

        flight = fusing.FusedBatch(served.engine.pools, lambda *_: None)
        assert await flight.fly(fuse, prepare, asked) == [None] * len(asked)
        assert served.pool.free == served.pool.size


async def test_what_is_counted(served: Served) -> None:
    """A step that was saved with its request is processed and completed as any other."""
    counted = {
        "progressor_fused_total": {"task_type": "call"},
        "progressor_request_preparing_duration_ms_count": {"task_type": "call"},
        "progressor_task_processing_duration_ms_count": {"task_type": "call"},
        "progressor_task_completion_duration_ms_count": {"completion_type": "resume"},
    }

    def read() -> list[float]:
        return [
            REGISTRY.get_sample_value(name, {"prg_namespace": NS, **labels}) or 0.0
            for name, labels in counted.items()
        ]

    before = read()
    await served.call("add")
    assert read() == [each + 1 for each in before]
