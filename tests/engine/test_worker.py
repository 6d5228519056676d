"""The step, where storage fails it: what this worker holds it must bring to an end."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import AsyncMock

import pytest
from prometheus_client import REGISTRY

from progressor import HistoryRange, Namespace, Process, Reject
from progressor.errors import InvalidRequest, SchemaMismatch, StorageUnavailable
from progressor.handlers.running import threads
from progressor.handlers.running.threads import NoThread
from progressor.handlers.running.waits import Lending
from progressor.loggers import message_of
from progressor.model import Event, Task, TaskStatus, TaskType
from progressor.storage.group_commit import batch_steps
from progressor.storage.operations import Storage
from progressor.storage.values import Claimed, TaskOutcome, TaskRef
from progressor.worker.foreign_functions import ForeignFunctions, LeftToOthers
from progressor.worker.result_budget import ResultBudget
from progressor.worker.slot import Slot
from progressor.worker.worker import StepResult, Worker
from tests.engine.clock import PAST, start_at
from tests.support import (
    NO_FOREIGN,
    NS,
    SECOND,
    NoConnections,
    Tables,
    claim_calls,
    claim_timers,
    hold,
    request,
    set_timer,
    wait,
)


class Reads:
    """Stands where the reads of a node would: away at first, then back."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or StorageUnavailable("away")

    async def __call__(self) -> Self:
        return self

    async def events(self, *_: Any, **__: Any) -> tuple[Event, ...]:
        if self.failures:
            self.failures -= 1
            raise self.error
        return ()


class Told:
    """Stands where Replies would."""

    def __init__(self) -> None:
        self.answers: list[tuple[TaskRef, TaskOutcome]] = []

    def resolve(self, ref: TaskRef, answer: TaskOutcome) -> None:
        self.answers.append((ref, answer))

    def look(self, ref: TaskRef) -> None:
        raise AssertionError("nothing was cancelled")


class Reversed:
    """A codec."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    decode = encode


@pytest.fixture
def told() -> Told:
    return Told()


async def lends_nothing(_namespace: str, _process_no: int) -> bool:
    return False


def worker_of(
    namespace: Namespace, storage: Storage, told: Told, failures: int = 0, error: Exception | None = None
) -> Worker:
    reads: Any = Reads(failures, error)
    replies: Any = told
    no_connections: Any = NoConnections()
    return Worker(
        namespace,
        namespace,
        batch_steps(storage),
        reads,
        replies,
        lending=Lending((), (), lends_nothing),
        budget=ResultBudget(),
        connections=no_connections,
        foreign=NO_FOREIGN,
        groups=storage.enter_group,
    )


def namespace_of(**options: Any) -> Namespace:
    namespace = Namespace(NS, **options)

    @namespace.call(name="go")
    async def go(process: Process) -> int:
        process.emit("went")
        return 7

    return namespace


async def held(storage: Storage) -> Claimed:
    await start_at(storage, None)
    step = await hold(storage, request(args=None, name="go"), now=None)
    return Claimed(step.task, step.process)


async def test_a_history_that_cannot_be_read_for_now(storage: Storage, tables: Tables, told: Told) -> None:
    """While histories cannot be read the step waits; it is not lost, and its process does not break."""
    worker = worker_of(namespace_of(history=HistoryRange()), storage, told, failures=3)
    assert await worker.step(await held(storage), Slot()) == StepResult()
    assert [(answer.status, answer.response) for _, answer in told.answers] == [(TaskStatus.FINISHED, b"7")]
    assert len(tables.events()) == 1


async def test_a_history_that_cannot_be_read(storage: Storage, tables: Tables, told: Told) -> None:
    """Its step fails, and its caller is told why: the task does not stay in the hands of its worker."""
    namespace = namespace_of(history=HistoryRange())
    worker = worker_of(namespace, storage, told, failures=9, error=InvalidRequest("event 7: no such date"))
    assert await worker.step(await held(storage), Slot()) == StepResult()
    ((_, answer),) = told.answers
    assert answer.status is TaskStatus.ERROR
    assert "no such date" in str(answer.error)
    assert tables.running() is None


@pytest.mark.parametrize("error", [StorageUnavailable("away"), SchemaMismatch("no such column")])
async def test_nobody_knows_who_serves_a_function(error: Exception) -> None:
    """While it cannot be looked up, a request for a function that is lacking here goes back unharmed."""
    lacking: Any = SimpleNamespace(others_serving=AsyncMock(side_effect=error))
    foreign = ForeignFunctions(
        Namespace(NS), lacking, worker_id=1, lease_age=timedelta(seconds=9), wake=lambda *_: None
    )
    with pytest.raises(LeftToOthers):
        await foreign.leave(Task(NS, "p1", 1, TaskType.CALL, "go"))


@pytest.mark.parametrize("codec", [None, Reversed()])
async def test_why_a_process_broke_is_said(
    codec: Reversed | None, storage: Storage, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """By the error's type and text, in one bounded line; by the type alone where a codec hides the rest."""
    namespace = Namespace(NS, codec=codec)

    @namespace.call(name="go")
    async def go(process: Process) -> None:
        raise KeyError("no\nsuch " + "card" * 1000)

    await worker_of(namespace, storage, told).step(await held(storage), Slot())
    (said,) = [record for record in caplog.records if message_of(record) == "process broke"]
    assert (said.namespace, said.process_id) == (NS, "p1")
    if codec is None:
        assert said.error.startswith("KeyError: 'no\\nsuch card")
        assert len(said.error) == 300
    else:
        assert said.error == "KeyError"


@pytest.mark.parametrize("codec", [None, Reversed()])
async def test_a_refused_notice_is_said(
    codec: Reversed | None, storage: Storage, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for its answer; a refused call has a caller who hears it, and no line."""
    namespace = Namespace(NS, codec=codec)

    @namespace.call(name="go")
    async def go(process: Process) -> None:
        raise Reject("no\nsuch card")

    await start_at(storage, None)
    for kind in (TaskType.CALL, TaskType.NOTIFY):
        step = await hold(storage, request("p1", kind, args=None, name="go"), now=None)
        await worker_of(namespace, storage, told).step(Claimed(step.task, step.process), Slot())
    (said,) = [record for record in caplog.records if message_of(record) == "notice refused"]
    assert (said.namespace, said.process_id, said.task_type, said.call) == (NS, "p1", "notify", "go")
    assert said.reason == ("no such card" if codec is None else "(hidden by the codec)")


async def test_a_result_without_a_lease_is_dropped(storage: Storage, tables: Tables, told: Told) -> None:
    """A worker that lost its lease changes nothing, tells nobody, and counts it."""

    def lost() -> float:
        return REGISTRY.get_sample_value("progressor_lost_leases_total", {"prg_namespace": NS}) or 0.0

    claimed, before = await held(storage), lost()
    await storage.hand_back([claimed.task])
    assert await worker_of(namespace_of(), storage, told).step(claimed, Slot()) == StepResult()
    assert (tables.events(), told.answers) == ([], [])
    assert lost() == before + 1


async def test_a_timer_that_it_sets_is_announced(storage: Storage, told: Told) -> None:
    """After a step that set a timer the pool hears in how long it will be due."""
    namespace = Namespace(NS)

    @namespace.call(name="go")
    async def go(process: Process) -> None:
        process.set_timer(after=timedelta(minutes=5))

    @namespace.timeout
    async def late(process: Process) -> None:
        """A timer may be set."""

    stepped = await worker_of(namespace, storage, told).step(await held(storage), Slot())
    assert stepped == StepResult(None, timedelta(minutes=5))


async def test_a_result_that_postgresql_refuses(storage: Storage, tables: Tables, told: Told) -> None:
    """Its caller is told what was saved: that the step failed; and it is counted so."""
    broken, labels = "progressor_broken_total", {"prg_namespace": NS}
    step, before = await held(storage), REGISTRY.get_sample_value(broken, labels) or 0.0
    tables.execute("ALTER TABLE events ADD CONSTRAINT none CHECK (event_id < 0)")
    assert await worker_of(namespace_of(), storage, told).step(step, Slot()) == StepResult()
    ((_, answer),) = told.answers
    process = tables.process()
    assert process is not None
    assert (answer.status, answer.error) == (TaskStatus.ERROR, process["detail"])
    assert process["detail"].startswith("the result could not be saved: ")
    assert REGISTRY.get_sample_value(broken, labels) == before + 1


async def test_a_removal_that_postgresql_refuses(storage: Storage, tables: Tables, told: Told) -> None:
    """A row of the application's own needs the process: the removal is retried, then held."""
    await start_at(storage, PAST, "p1", set_timer(SECOND, remove=True))
    tables.execute("CREATE TABLE public.invoices (process_no bigint REFERENCES processes)")
    tables.execute("INSERT INTO public.invoices SELECT process_no FROM processes")
    (timer,) = await claim_timers(storage)
    twice = namespace_of(retry_policy={"max_attempts": 2, "initial_interval": timedelta(minutes=1)})
    stepped = await worker_of(twice, storage, told).step(Claimed(*timer), Slot())
    assert stepped == StepResult(None, timedelta(minutes=1))
    assert tables.outline()[1:] == [("remove", "waiting")]
    tables.execute("UPDATE schedule SET scheduled_time = now()")
    (timer,) = await claim_timers(storage)
    assert await worker_of(twice, storage, told).step(Claimed(*timer), Slot()) == StepResult()
    process = tables.process()
    assert process is not None
    assert process["status"] == "error"
    assert process["detail"].startswith("the result could not be saved: ")
    assert "invoices" in process["detail"]
    assert tables.outline()[1:] == [("remove", "error"), ("remove", "held")]
    tables.execute("DROP TABLE public.invoices")


async def test_a_handler_that_runs_on_keeps_the_slot(storage: Storage, tables: Tables, told: Told) -> None:
    """A sync handler that outlives its step is announced, and the step goes on with nothing else."""
    namespace, proceed, slot = (
        Namespace(NS, step_timeout=timedelta(milliseconds=20)),
        threading.Event(),
        Slot(),
    )
    namespace.init(lambda process: None)

    @namespace.timeout
    def fire(process: Process) -> None:
        proceed.wait(30)

    worker = worker_of(namespace, storage, told)
    await start_at(storage, PAST, "p1", set_timer(SECOND))
    (timer,) = await claim_timers(storage)
    await wait(storage, request(worker_id=None))
    assert (await worker.step(timer, slot)).following is None
    assert slot.hung is not None
    task, thread = slot.hung
    assert (task, thread.done(), slot.goes_on) == (timer.task, False, False)
    proceed.set()
    assert len(await claim_calls(storage)) == 1


async def test_a_step_without_a_thread_was_not_begun(
    storage: Storage, tables: Tables, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is no thread for a sync handler nothing is saved, and whoever holds the task hears it."""
    namespace = Namespace(NS)
    namespace.call(lambda process: 7, name="go")
    claimed = await held(storage)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads._threads_of.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoThread):
            await worker_of(namespace, storage, told).step(claimed, Slot())
    assert (tables.events(), told.answers) == ([], [])
    assert await worker_of(namespace, storage, told).step(claimed, Slot()) == StepResult()
    assert [answer.response for _, answer in told.answers] == [b"7"]
