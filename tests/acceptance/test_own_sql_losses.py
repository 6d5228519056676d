"""Transactions of handlers that are lost: with their connection, lease or time, or for want of a slot."""

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession

from progressor import (
    App,
    CallNext,
    Client,
    Engine,
    HandlerFailed,
    InvalidRequest,
    Namespace,
    Process,
    Reject,
    StepView,
    TaskStatus,
)
from progressor.handlers.function import Function
from progressor.storage.own_sql import drivers
from progressor.storage.own_sql.drivers import AsyncDriver, Marked
from progressor.storage.postgres.pipeline import Session
from progressor.worker.connection_slots import ConnectionSlots, FunctionLine
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import until
from tests.acceptance.test_own_sql import NS, PSYCOPG, Ledger, Till, admin, ledger
from tests.acceptance.test_stop import QUICK
from tests.support import lack_descriptors

__all__ = ["admin", "ledger"]

SECOND = timedelta(seconds=1)


async def end_sessions(admin: psycopg.AsyncConnection[Any], way: str = "terminate") -> int:
    """End the connections of handlers that are in a transaction; an idle one may be beside them."""
    found = await admin.execute(
        f"SELECT count(pg_{way}_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'progressor step' AND datname = current_database() "
        "AND xact_start IS NOT NULL"
    )
    row = await found.fetchone()
    return row[0] if row else 0


async def test_a_handler_whose_connection_is_lost_runs_again(
    serve: MakeClient, admin: psycopg.AsyncConnection[Any], ledger: Ledger
) -> None:
    """The call is answered, its row and its event are there once, and its process is well."""
    till = Till()
    client = await serve(till.namespace)
    await client.start(NS, "p", 1)
    asking = asyncio.create_task(client.call(NS, "p", "held", {"amount": 5}))
    await till.gate.entered()
    assert await end_sessions(admin) == 1
    till.gate.open()
    assert await asking == 5
    assert till.runs == 2
    assert await ledger() == [1, 5]
    assert (await client.get(NS, "p")).last_event_id == 1


async def test_a_session_that_was_ended_at_rest_is_not_handed_out(
    serve: MakeClient, admin: psycopg.AsyncConnection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As a role's idle_session_timeout or a pooler's does: the next step gets another, in silence."""
    till = Till()
    client = await serve(till.namespace)
    till.gate.open()
    await client.start(NS, "p", 1)
    await client.call(NS, "p", "held", {"amount": 5})
    for amount in (2, 3):
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'progressor step' AND datname = current_database()"
        )
        with caplog.at_level(logging.WARNING, "progressor"):
            await client.call(NS, "p", "held", {"amount": amount})
    assert [record.getMessage() for record in caplog.records] == []
    assert till.runs == 3
    *_, entry = await client.trace(NS, "p")
    assert entry.attempts_count == 0


async def test_a_request_whose_connection_is_lost_does_not_expire(
    serve: MakeClient, admin: psycopg.AsyncConnection[Any], ledger: Ledger
) -> None:
    """It had begun in time, so it goes on, and its trace has the try that was lost."""
    till = Till()
    client = await serve(till.namespace)
    await client.start(NS, "p", 1)
    expires = timedelta(seconds=2)
    asked = await client.submit_call(NS, "p", "held", {"amount": 5}, expires=expires)
    await till.gate.entered()
    await asyncio.sleep(expires.total_seconds())
    assert await end_sessions(admin) == 1
    till.gate.open()
    assert await client.answer(asked) == 5
    assert await ledger() == [1, 5]
    *_, entry = await client.trace(NS, "p")
    assert (entry.attempts_count, entry.error) == (1, None)


async def test_a_handler_for_which_no_descriptor_is_left_goes_back(
    serve: MakeClient, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not begun: it is tried again, and its process is well."""
    till = Till()
    client = await serve(till.namespace)
    await client.put(NS, "p", state=1)
    lacking = lack_descriptors(monkeypatch, times=1)
    till.gate.open()
    assert await client.call(NS, "p", "held", {"amount": 5}) == 6
    assert (lacking, till.runs) == ([], 1)
    assert await ledger() == [5]
    assert (await client.get(NS, "p")).status == "running"


async def test_what_loses_its_connection_each_time_rests(serve: MakeClient) -> None:
    """Its pauses grow, its trace counts, its slot serves others, and its process does not break."""
    losing = Namespace(NS, concurrency=1)
    runs: list[float] = []
    loses = True

    @losing.init
    async def begin(process: Process[Any]) -> None: ...

    @losing.call
    async def die(process: Process[Any], *, connection: psycopg.AsyncConnection) -> int:
        runs.append(asyncio.get_running_loop().time())
        if loses:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return len(runs)

    @losing.call
    async def live(process: Process[Any]) -> str:
        return "alive"

    client = await serve(losing)
    for name in ("p", "other"):
        await client.start(NS, name)
    asked = await client.submit_call(NS, "p", "die")
    behind = await client.submit_call(NS, "p", "live")
    trace = await until(
        lambda: client.trace(NS, "p"), lambda found: found[1].last_retry_interval == 2 * SECOND
    )
    assert await client.call(NS, "other", "live") == "alive"
    lost = trace[1]
    assert (lost.status, lost.attempts_count, len(runs)) == (TaskStatus.WAITING, 2, 2)
    assert lost.error == "to run again: the connection was lost while the handler ran (AdminShutdown)"
    loses = False
    assert await client.answer(asked) == 3
    assert await client.answer(behind) == "alive"
    first, second = (later - sooner for sooner, later in pairwise(runs))
    assert first >= 1
    assert second >= 2
    assert (await client.get(NS, "p")).status == "running"


async def test_a_request_whose_connection_is_lost_before_its_handler_has_not_begun(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], ledger: Ledger
) -> None:
    """An idle connection that the server ended is found out as a step takes it: no try is counted."""
    till = Till()
    running = await engine(till.namespace)
    client = running.client
    await client.start(NS, "p", 1)
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'progressor step' AND datname = current_database()"
    )
    assert await client.call(NS, "p", "async_psycopg", {"amount": 5}) == 5
    assert await ledger() == [1, 5]
    *_, entry = await client.trace(NS, "p")
    assert entry.attempts_count == 0


@pytest.mark.parametrize("way", ["terminate", "cancel"])
@pytest.mark.parametrize("name", ["async_connection", "blocking_psycopg"])
async def test_a_connection_that_is_lost_in_a_deferred_trigger_is_no_failure_of_the_handler(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], ledger: Ledger, name: str, way: str
) -> None:
    """It is lost, or cancelled, while constraints are checked, after the handler: which runs again."""
    client = (await engine(Till().namespace)).client
    await client.start(NS, "p", 1)
    await admin.execute("CREATE SEQUENCE checks")
    await admin.execute(
        "CREATE FUNCTION check_slowly() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF nextval(''checks'') = 1 THEN PERFORM pg_sleep(20); END IF; RETURN NULL; END'"
    )
    await admin.execute(
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION check_slowly()"
    )
    asking = asyncio.create_task(client.call(NS, "p", name, {"amount": 5}))

    async def checks() -> Any:
        found = await admin.execute("SELECT is_called FROM checks")
        return await found.fetchone()

    await until(checks, lambda row: row == (True,))
    assert await end_sessions(admin, way) == 1
    assert await asking == 5
    assert await ledger() == [1, 5]


@pytest.mark.parametrize("state", ["55000", "0A000", "P0001"])
async def test_what_a_deferred_trigger_raises_is_the_handlers_failure(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], ledger: Ledger, state: str
) -> None:
    """It would come again each time, whatever class of errors it names."""
    client = (await engine(Till().namespace)).client
    await client.start(NS, "p", 1)
    await admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE 'not so' USING ERRCODE = '{state}'; END $$"
    )
    await admin.execute(
        "CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(HandlerFailed, match="not so"):
        await client.call(NS, "p", "async_psycopg", {"amount": 5})
    assert await ledger() == [1]


@pytest.mark.parametrize("name", ["async_connection", "blocking_psycopg"])
async def test_a_begin_that_is_cancelled_is_no_failure_of_the_handler(
    engine: MakeEngine,
    ledger: Ledger,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its handler was not called: the step is handed back, and no try is counted."""
    till = Till()
    client = (await engine(till.namespace)).client
    await client.start(NS, "p", 1)
    await cancelled_at_its_begin(client, name, monkeypatch, caplog)
    assert await ledger() == [1, 5]
    *_, entry = await client.trace(NS, "p")
    assert entry.attempts_count == 0
    assert "handler failed" not in caplog.text


async def cancelled_at_its_begin(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Make a call whose transaction cannot begin at first."""
    cancelled = b"SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(9)"
    with monkeypatch.context() as patch:
        patch.setattr(drivers, "_BEGUN", cancelled)
        asking = asyncio.create_task(client.call(NS, "p", name, {"amount": 5}))
        await until(lambda: asyncio.sleep(0, caplog.text), lambda text: "PostgreSQL not available" in text)
    assert await asking == 5


async def test_middleware_makes_no_failure_of_it(
    dsn: str,
    mode: dict[str, Any],
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may take anything for an error of the handler, or for none."""

    async def greedy(step: StepView, call_next: CallNext) -> Any:
        try:
            return await call_next(step)
        except BaseException:  # noqa: BLE001 - as middleware may
            raise Reject("something went wrong") from None

    till = Till()
    async with Engine(dsn, App([till.namespace], middleware=[greedy]), **mode) as engine:
        await engine.client.start(NS, "p", 1)
        await cancelled_at_its_begin(engine.client, "async_psycopg", monkeypatch, caplog)
        assert await ledger() == [1, 5]


async def test_a_pipeline_that_does_not_end_is_a_lost_connection(
    engine: MakeEngine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a session ends amid a pipeline, libpq may not call it lost: the handler runs again."""
    check, cut = AsyncDriver.check, False

    async def cut_check(self: AsyncDriver, given: Marked) -> None:
        nonlocal cut
        if not cut:
            cut = True
            self.pgconn.enter_pipeline_mode()
            raise psycopg.OperationalError("cannot exit pipeline mode while busy")
        await check(self, given)

    monkeypatch.setattr(AsyncDriver, "check", cut_check)
    client = (await engine(Till().namespace)).client
    await client.start(NS, "p", 1)
    assert cut
    assert await ledger() == [1]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(
    engine: MakeEngine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """One that was done counts, one that was not is run again: the row is there once, with its step."""
    till = Till()
    client = (await engine(till.namespace)).client
    await client.start(NS, "p", 1)
    till.gate.open()
    commit, lost = Session.commit, False

    async def losing(self: Session, statements: Any, hints: Any = None) -> Any:
        nonlocal lost
        if lost or type(self) is Session:
            return await commit(self, statements, hints)
        lost = True
        if committed:
            await commit(self, statements, hints)
        else:
            await self.roll_back()
        raise psycopg.OperationalError("the connection was lost at COMMIT")

    monkeypatch.setattr(Session, "commit", losing)
    assert await client.call(NS, "p", "held", {"amount": 5}) == 5
    assert till.runs == (1 if committed else 2)
    assert await ledger() == [1, 5]
    assert (await client.get(NS, "p")).last_event_id == 1


@pytest.mark.parametrize("lost_by", ["removal", "another worker"])
async def test_a_lost_lease_rolls_the_rows_back(
    serve: MakeClient, admin: psycopg.AsyncConnection[Any], ledger: Ledger, lost_by: str
) -> None:
    """A step whose process was removed, or whose task another worker has, leaves no row of its handler."""
    till = Till()
    client = await serve(till.namespace)
    await client.start(NS, "p", 1)
    asking = asyncio.create_task(client.notify(NS, "p", "held", {"amount": 5}))
    await till.gate.entered()
    await asking
    if lost_by == "removal":
        await client.remove(NS, "p")
    else:
        await admin.execute("UPDATE progressor.running SET lease = lease + 7")
    till.gate.open()
    await until(
        lambda: _states(admin), lambda states: bool(states) and all(each == "idle" for each in states)
    )
    assert await ledger() == [1]
    if lost_by != "removal":
        await client.remove(NS, "p")


async def _states(admin: psycopg.AsyncConnection[Any]) -> list[str]:
    found = await admin.execute(
        "SELECT state FROM pg_stat_activity "
        "WHERE application_name = 'progressor step' AND datname = current_database()"
    )
    return [state for (state,) in await found.fetchall()]


async def test_a_plain_function_that_hangs_is_cut_off(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], ledger: Ledger
) -> None:
    """Its rows and locks are gone when its step has failed; what it does later gets an error."""
    namespace, passes = Namespace(NS, step_timeout=SECOND / 2), threading.Event()
    later: list[BaseException] = []

    @namespace.init
    def hang(process: Process[Any], *, connection: psycopg.Connection) -> None:
        try:
            connection.execute(PSYCOPG, (process.process_id, 1))
            passes.wait(20)
            connection.execute(PSYCOPG, (process.process_id, 2))
        except psycopg.Error as error:
            later.append(error)
            raise

    client = (await engine(namespace)).client
    with pytest.raises(HandlerFailed, match="StepTimeout"):
        await client.start(NS, "p")
    await until(lambda: _states(admin), lambda states: not states)
    passes.set()
    await until(_length_of(later), lambda count: count == 1)
    assert await ledger() == []


def _length_of(listed: list[Any]) -> Callable[[], Any]:
    async def length() -> int:
        return len(listed)

    return length


async def test_steps_that_wait_for_a_connection_delay_no_others(serve: MakeClient, ledger: Ledger) -> None:
    """With one connection and two slots, other functions run while handlers wait for the connection."""
    till = Till(concurrency=2)
    client = await serve(till.namespace, connection_slots=1)
    names = ["a", "b", "c", "d"]
    for amount, name in enumerate(names, 1):
        await client.start(NS, name, amount)
    asking = [asyncio.create_task(client.call(NS, name, "held", {"amount": 9})) for name in names]
    await till.gate.entered()
    async with asyncio.timeout(20):
        await client.put(NS, "free", state=0)
        assert await client.call(NS, "free", "plain") == "plain"
    assert till.runs == 1
    till.gate.open()
    assert await asyncio.gather(*asking) == [9] * 4
    assert sorted(await ledger()) == [1, 2, 3, 4, 9, 9, 9, 9]


async def figures() -> tuple[float | None, ...]:
    """How many slots for connections are busy and free, and how many steps wait for one."""
    slots = (
        REGISTRY.get_sample_value("progressor_connection_slots", {"state": state})
        for state in ("busy", "free")
    )
    return (*slots, REGISTRY.get_sample_value("progressor_connection_waits"))


@pytest.mark.usefixtures("ledger")
async def test_slots_and_those_who_wait_for_one_are_counted(serve: MakeClient) -> None:
    """All are free at first; each handler takes one, the next one waits; and all are free again."""
    till = Till()
    client = await serve(till.namespace, connection_slots=2)
    assert await figures() == (0, 2, 0)
    for name in ("a", "b", "c"):
        await client.start(NS, name, 1)
    await until(figures, lambda found: found == (0, 2, 0))
    asking = []
    for name, found in (("a", (1, 1, 0)), ("b", (2, 0, 0)), ("c", (2, 0, 1))):
        asking.append(asyncio.create_task(client.call(NS, name, "held", {"amount": 9})))
        await until(figures, lambda shown, found=found: shown == found)  # type: ignore[misc] # as it is now
    till.gate.open()
    await asyncio.gather(*asking)
    await until(figures, lambda found: found == (0, 2, 0))


async def test_a_stop_hands_back_what_waits_for_a_connection(engine: MakeEngine, ledger: Ledger) -> None:
    """A worker that stops leaves a waiting step to the next one, unharmed."""
    till = Till()
    first = await engine(till.namespace, connection_slots=1)
    for amount, name in enumerate(("a", "b"), 1):
        await first.client.start(NS, name, amount)
    await first.client.notify(NS, "a", "held", {"amount": 8})
    await till.gate.entered()
    await first.client.notify(NS, "b", "held", {"amount": 9})
    stopping = asyncio.create_task(first.stop())
    till.gate.open()
    await stopping
    second = await engine(till.namespace)

    async def found() -> list[int]:
        return sorted(await ledger())

    await until(found, lambda amounts: amounts == [1, 2, 8, 9])
    assert (await second.client.get(NS, "b")).last_event_id == 1


async def test_a_stop_cuts_off_a_plain_function_that_it_gives_up(
    engine: MakeEngine, admin: psycopg.AsyncConnection[Any], ledger: Ledger
) -> None:
    """Its statement ends on the server, with its rows and locks; it gets an error, and is run again."""
    namespace, failed = Namespace(NS, on_zombie="retry"), list[BaseException]()
    runs = 0

    @namespace.init
    def sleep_once(process: Process[Any], *, connection: psycopg.Connection) -> None:
        nonlocal runs
        runs += 1
        connection.execute(PSYCOPG, (process.process_id, runs))
        try:
            connection.execute("SELECT pg_sleep(%s)", (60 if runs == 1 else 0,))
        except psycopg.Error as error:
            failed.append(error)
            raise

    async def sleepers() -> Any:
        found = await admin.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        return await found.fetchone()

    first = await engine(namespace, stop_grace=SECOND / 20, **QUICK)
    await first.client.submit_start(NS, "p")
    await until(sleepers, lambda found: found == (1,))
    async with asyncio.timeout(20):
        await first.stop()
        await until(lambda: _states(admin), lambda states: not states)
        await until(_length_of(failed), lambda count: count == 1)
    assert await ledger() == []
    await engine(namespace, **QUICK)
    await until(ledger, lambda amounts: amounts == [2])


def test_a_connection_that_cannot_be_given_is_refused_at_once() -> None:
    """Each wrong annotation is named as the function is decorated."""
    namespace = Namespace(NS)
    with pytest.raises(InvalidRequest, match="for an async function"):

        @namespace.init
        async def unannotated(process: Process[Any], *, connection) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(InvalidRequest, match="for an async function"):

        @namespace.init
        async def blocking(process: Process[Any], *, connection: Connection) -> None: ...

    with pytest.raises(InvalidRequest, match="for a plain function"):

        @namespace.init
        def other_colour(process: Process[Any], *, connection: AsyncSession) -> None: ...

    with pytest.raises(InvalidRequest, match="for a plain function"):

        @namespace.timeout
        def something(process: Process[Any], *, connection: int) -> None: ...

    with pytest.raises(InvalidRequest, match="no step of it can be fused"):

        @namespace.init(fused=True)
        async def fused(process: Process[Any], *, connection: AsyncSession) -> None: ...


async def test_slow_functions_leave_a_slot_to_others(
    serve: MakeClient, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that is known to hold its connection for long does not take the last slot."""
    till, line_of = Till(), ConnectionSlots.line

    def line(slots: ConnectionSlots, function: Function) -> FunctionLine:
        found = line_of(slots, function)
        if function.name.endswith("held"):
            # As if its last steps had taken an hour each.
            found.typical = 3600.0
        return found

    monkeypatch.setattr(ConnectionSlots, "line", line)
    client = await serve(till.namespace, connection_slots=2)
    for name in ("a", "b", "c"):
        await client.start(NS, name, 1)
    asking = [asyncio.create_task(client.call(NS, name, "held", {"amount": 7})) for name in ("a", "b")]
    await until(figures, lambda found: found == (1, 1, 1))
    async with asyncio.timeout(20):
        assert await client.call(NS, "c", "async_psycopg", {"amount": 5}) == 5
    till.gate.open()
    await asyncio.gather(*asking)
    assert sorted(await ledger()) == [1, 1, 1, 5, 7, 7]
