"""What handlers may be and do: sync and async, typed and raw, with and without history."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from progressor import (
    Engine,
    Event,
    HandlerFailed,
    HistoryRange,
    Intent,
    InvalidRequest,
    Namespace,
    Process,
    ProcessBroken,
    ProcessStatus,
    Reject,
    Rejected,
    SetTimer,
    Task,
)
from progressor.handlers.running import forks
from tests.acceptance.conftest import MakeClient, MakeEngine, Options
from tests.acceptance.support import Xor, until

SHORT = timedelta(milliseconds=80)


async def test_events_by_name_and_by_model(serve: MakeClient) -> None:
    """`emit(name, **payload)` and `emit(model)` append events; the name stands in the metadata."""

    class Paid(BaseModel):
        amount: int

    namespace = Namespace("ns")

    @namespace.init
    async def init(process: Process) -> None:
        process.emit("opened", plan="pro", seats=[1, 2])
        process.emit(Paid(amount=7))
        process.emit("bare")

    client = await serve(namespace)
    await client.start("ns", "p")
    history = (await client.get("ns", "p")).history
    assert [(e.event_id, e.name, e.payload, e.metadata) for e in history] == [
        (1, "opened", {"plan": "pro", "seats": [1, 2]}, {"name": "opened"}),
        (2, "Paid", {"amount": 7}, {"name": "Paid"}),
        (3, "bare", {}, {"name": "bare"}),
    ]
    assert len({event.timestamp for event in history}) == 1


async def test_states_plain_and_none(serve: MakeClient) -> None:
    """Without `state=` the state is any JSON, changed in place or assigned; or none at all."""
    plain, none = Namespace("plain"), Namespace("none")

    @plain.init
    async def init(process: Process, args: dict[str, Any]) -> None:
        process.state = {"items": [args]}

    @plain.call
    async def add(process: Process, args: str) -> int:
        process.state["items"].append(args)
        return len(process.state["items"])

    @none.init
    async def init_none(process: Process) -> None:
        assert process.state is None

    client = await serve(plain, none)
    await client.start("plain", "p", {"a": 1})
    assert await client.call("plain", "p", "add", "b") == 2
    assert (await client.get("plain", "p")).state == {"items": [{"a": 1}, "b"]}
    await client.start("none", "p")
    assert (await client.get("none", "p")).state is None


async def test_what_a_handler_sees(serve: MakeClient) -> None:
    """In a handler the process has its id, namespace, status, task, now and counters."""
    seen: dict[str, Any] = {}
    namespace = Namespace("ns")

    @namespace.init
    async def init(process: Process) -> None:
        seen["init"] = (process.process_id, process.namespace, process.status, process.last_event_id)
        process.emit("e")

    @namespace.call
    async def look(process: Process) -> None:
        seen["call"] = (process.status, process.last_event_id, process.task.name, process.history)
        seen["now"] = process.now

    client = await serve(namespace)
    await client.start("ns", "p")
    await client.call("ns", "p", "look", idempotency_key="k")
    assert seen["init"] == ("p", "ns", ProcessStatus.INIT, 0)
    assert seen["call"] == (ProcessStatus.RUNNING, 1, "look", ())
    assert seen["now"] == (await client.trace("ns", "p"))[-1].running_time


async def test_history_of_the_namespace_and_of_one_call(serve: MakeClient) -> None:
    """Handlers get the range of events that their namespace or their decorator says, and no more."""
    seen: dict[str, list[int]] = {}
    namespace = Namespace("ns", history=HistoryRange(limit=2, direction="backward"))

    def look(name: str, **options: Any) -> None:
        @namespace.call(name=name, **options)
        async def call(process: Process) -> None:
            seen[name] = [event.event_id for event in process.history]
            process.emit("looked", by=name)

    look("default")
    look("everything", history=HistoryRange())
    look("nothing", history=None)
    look("some", history=HistoryRange(offset=1, limit=3))
    client = await serve(namespace)
    await client.put("ns", "p", events=[{"name": f"e{number}"} for number in range(1, 6)])
    for name in ("default", "everything", "nothing", "some", "default"):
        await client.call("ns", "p", name)
        if name == "default":
            latest = seen["default"]
    assert seen["everything"] == [1, 2, 3, 4, 5, 6]
    assert (seen["nothing"], seen["some"], latest) == ([], [2, 3, 4], [9, 8])


async def test_history_along_a_chain_of_steps(serve: MakeClient) -> None:
    """A worker that goes on from step to step shows each of them the events of the last one."""
    seen: list[list[str | None]] = []
    namespace = Namespace("ns", history=HistoryRange())

    @namespace.init
    async def init(process: Process) -> None:
        process.state = 0
        process.emit("start")
        process.set_timer(after=timedelta(0))

    @namespace.timeout
    async def tick(process: Process) -> None:
        seen.append([event.name for event in process.history])
        process.state += 1
        process.emit(f"tick{process.state}")
        if process.state < 3:
            process.set_timer(after=timedelta(0))

    client = await serve(namespace)
    await client.start("ns", "p")
    await until(lambda: client.get("ns", "p"), lambda process: process.last_event_id == 4)
    assert seen == [["start"], ["start", "tick1"], ["start", "tick1", "tick2"]]


async def test_sync_handlers_run_in_threads(serve: MakeClient) -> None:
    """A plain function is a handler too; it runs in a thread, and others go on while it blocks."""
    namespace = Namespace("ns")
    inside, proceed = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @namespace.init
    def init(process: Process) -> None:
        process.state = 1

    @namespace.call
    def block(process: Process) -> int:
        threads.append(threading.current_thread())
        inside.set()
        assert proceed.wait(30)
        process.state += 1
        return process.state

    @namespace.call
    async def quick(process: Process) -> str:
        return "quick"

    client = await serve(namespace)
    await client.start("ns", "blocked")
    await client.start("ns", "free")
    blocked = asyncio.create_task(client.call("ns", "blocked", "block"))
    await asyncio.to_thread(inside.wait, 30)
    assert await client.call("ns", "free", "quick") == "quick"
    assert not blocked.done()
    proceed.set()
    assert await blocked == 2
    assert threading.main_thread() not in threads


async def test_sync_handlers_reject_and_fail(serve: MakeClient) -> None:
    """What a handler raises in its thread counts as it does in any other."""
    namespace = Namespace("ns")

    @namespace.init
    def init(process: Process, args: str) -> None:
        if args == "reject":
            raise Reject("in a thread", size=1)
        raise KeyError(args)

    client = await serve(namespace)
    with pytest.raises(Rejected, match="in a thread"):
        await client.start("ns", "p", "reject")
    with pytest.raises(HandlerFailed, match="KeyError: 'fail'"):
        await client.start("ns", "p", "fail")


class Panic(BaseException):
    """As a library written in Rust raises it."""


async def test_a_handler_that_panics_has_failed(serve: MakeClient) -> None:
    """Its caller is told at once, its process can be repaired, and its slot is free."""
    namespace = Namespace("ns", concurrency=1)

    @namespace.call
    async def here(process: Process) -> None:
        raise Panic("in the loop")

    @namespace.call
    def there(process: Process) -> None:
        raise Panic("in a thread")

    client = await serve(namespace)
    await client.put("ns", "p")
    for name, text in (("here", "Panic: in the loop"), ("there", "Panic: in a thread")):
        with pytest.raises(HandlerFailed, match=text):
            await client.call("ns", "p", name)
        await client.simple_repair("ns", "p")


async def test_a_task_of_a_handler_ends_no_worker(serve: MakeClient) -> None:
    """`sys.exit()` in a task that a handler made breaks its own process; other steps go on."""
    namespace, begun, proceed = Namespace("ns"), asyncio.Event(), asyncio.Event()

    async def leave() -> None:
        sys.exit(2)

    @namespace.call
    async def gathers(process: Process) -> None:
        await asyncio.gather(leave())

    @namespace.call
    async def innocent(process: Process) -> int:
        begun.set()
        await proceed.wait()
        return 7

    client = await serve(namespace)
    await client.put("ns", "p")
    await client.put("ns", "q")
    async with asyncio.TaskGroup() as group:
        other = group.create_task(client.call("ns", "q", "innocent"))
        await begun.wait()
        with pytest.raises(HandlerFailed, match="RuntimeError: a task of the handler raised SystemExit"):
            await client.call("ns", "p", "gathers")
        proceed.set()
    assert other.result() == 7


async def test_step_timeout_cancels_an_async_handler(serve: MakeClient) -> None:
    """A handler that outlives its step_timeout is cancelled; that is a failure."""
    namespace = Namespace("ns", step_timeout=SHORT)
    ended: list[str] = []

    @namespace.init
    async def init(process: Process) -> None:
        process.emit("never")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    client = await serve(namespace)
    with pytest.raises(HandlerFailed, match="StepTimeout"):
        await client.start("ns", "p")
    assert ended == ["cancelled"]
    process = await client.get("ns", "p")
    assert (process.status, process.last_event_id) == (ProcessStatus.ERROR, 0)


async def test_step_timeout_drops_a_sync_handlers_late_result(serve: MakeClient) -> None:
    """A blocking handler that is too late fails; what it returns afterwards changes nothing."""
    namespace = Namespace("ns", step_timeout=SHORT)
    proceed, ended = threading.Event(), threading.Event()

    @namespace.call
    def block(process: Process) -> None:
        process.emit("late")
        process.state = "late"
        proceed.wait(30)
        ended.set()

    client = await serve(namespace)
    await client.put("ns", "p", state="fine")
    with pytest.raises(HandlerFailed, match="StepTimeout"):
        await client.call("ns", "p", "block")
    before = await client.get("ns", "p")
    proceed.set()
    await asyncio.to_thread(ended.wait, 30)
    await client.simple_repair("ns", "p")
    process = await client.get("ns", "p")
    assert (process.state, process.last_event_id) == ("fine", 0)
    assert before.detail.startswith("StepTimeout")


class Raw:
    """A handler in bytes: it counts in its state, and answers what it got."""

    async def process(self, task: Task, process: Process) -> Intent:
        if task.args == b"\xff reject":
            raise Reject("no")
        if task.args == b"\xff wrong":
            return Intent(response="not bytes")  # type: ignore[arg-type]
        count = (process.aux_state or b"") + b"\x00"
        return Intent(
            events=(Event(b"\xfe" + (task.args or b"-"), {"name": task.task_type.value}),),
            action=SetTimer(after=timedelta(0)) if task.args == b"\xff timer" else None,
            response=b"\x01\x02" + (task.args or b""),
            aux_state=count,
            metadata={"count": len(count)},
        )


async def test_a_raw_handler_speaks_bytes(serve: MakeClient) -> None:
    """`Namespace(handler=…)` passes bytes through: args, response, state and events, whatever they are."""
    client = await serve(Namespace("raw", handler=Raw()))
    assert await client.start("raw", "p", b"\xff\x00") == b"\x01\x02\xff\x00"
    assert await client.call("raw", "p", "any name", b"\xff timer") == b"\x01\x02\xff timer"
    process = await until(lambda: client.get("raw", "p"), lambda process: process.last_event_id == 3)
    assert [(e.name, e.payload) for e in process.history] == [
        ("init", b"\xfe\xff\x00"), ("call", b"\xfe\xff timer"), ("timeout", b"\xfe-"),
    ]  # fmt: skip
    assert (process.aux_state, process.metadata) == (b"\x00\x00\x00", {"count": 3})
    with pytest.raises(Rejected):
        await client.call("raw", "p", "any", b"\xff reject")
    with pytest.raises(HandlerFailed, match=r"Intent\.response must be bytes"):
        await client.call("raw", "p", "any", b"\xff wrong")
    with pytest.raises(ProcessBroken):
        await client.call("raw", "p", "any", b"")


class Echo:
    """Answers with what it is asked."""

    async def process(self, task: Task, process: Process) -> Intent:
        return Intent(response=task.args, aux_state=task.args)


async def test_bytes_that_look_like_json_stay_bytes(serve: MakeClient) -> None:
    """What a raw handler answers is handed out as it is, to clients without its code too."""
    client = await serve(Namespace("echo", handler=Echo()))
    assert await client.start("echo", "p", b"123") == b"123"
    assert (await client.get("echo", "p")).state == b"123"
    (entry,) = await client.trace("echo", "p")
    assert (entry.args, entry.response) == (b"123", b"123")
    (found,) = (await client.search(namespace="echo")).items
    assert found.state == b"123"


async def test_a_client_with_a_codec_leaves_raw_namespaces_alone(
    engine: MakeEngine, client: MakeClient
) -> None:
    """From the first request of a client on: who has bytes in the tables gets what was sent."""
    await engine(Namespace("echo", handler=Echo()))
    assert await (await client(codec=Xor())).start("echo", "p", b"args", context=b"context") == b"args"
    assert await (await client(codec=Xor())).call("echo", "p", "any", b"more") == b"more"
    dispatcher = await client(codec=Xor())
    await dispatcher.notify("echo", "p", "any", b"noted")
    entries = await until(
        lambda: dispatcher.trace("echo", "p"), lambda entries: entries[-1].response == b"noted"
    )
    assert [(entry.args, entry.context) for entry in entries] == [
        (b"args", b"context"), (b"more", None), (b"noted", None),
    ]  # fmt: skip


async def test_a_codec_hides_everything(engine: MakeEngine, client: MakeClient, dsn: str) -> None:
    """With a codec nothing that handlers and callers exchange can be read in the tables."""
    namespace = Namespace("ns", codec=Xor())

    @namespace.init
    async def init(process: Process, args: str) -> str:
        process.state = {"kept": args}
        process.emit("secret", text=args)
        return args

    @namespace.call
    async def echo(process: Process, args: list[str]) -> list[str]:
        return [process.state["kept"], *args, process.context]

    await engine(namespace)
    dispatcher = await client(codec=Xor())
    assert await dispatcher.start("ns", "p", "sesame", idempotency_key="k") == "sesame"
    assert await dispatcher.call("ns", "p", "echo", ["sesame"], context="sesame") == ["sesame"] * 3
    assert await dispatcher.start("ns", "p", "sesame", idempotency_key="k") == "sesame"
    await dispatcher.put("ns", "q", state="sesame", events=[{"name": "e", "payload": "sesame"}])
    process = await dispatcher.get("ns", "p")
    assert (process.state, process.history[0].payload) == ({"kept": "sesame"}, {"text": "sesame"})
    assert [entry.args for entry in await dispatcher.trace("ns", "p")] == ["sesame", ["sesame"]]
    with psycopg.connect(dsn) as connection:
        for table in ("processes", "tasks", "events"):
            rows = connection.execute(
                f"SELECT convert_from({table}::text::bytea, 'UTF8') FROM progressor.{table} AS {table}"
            )
            text = str(rows.fetchall())
            assert "sesame" not in text
            assert b"sesame".hex() not in text
    with pytest.raises(InvalidRequest, match="args"):
        await (await client()).start("ns", "r", "sesame")


async def test_a_simple_repair_has_no_answer_to_decode(engine: MakeEngine, client: MakeClient) -> None:
    """Whatever stands between values and the tables: its answer is none, also in the trace."""
    await engine(Namespace("ns", codec=Xor()), Namespace("echo", handler=Echo()))
    dispatcher = await client(codec=Xor())
    for name in ("ns", "echo"):
        await dispatcher.put(name, "p", status="error")
        receipt = await dispatcher.submit_simple_repair(name, "p")
        assert await dispatcher.answer(receipt) is None
        assert await dispatcher.result(name, "p", receipt.task_id) is None
        (entry,) = await dispatcher.trace(name, "p", last=1)
        assert (entry.name, entry.response) == ("simple_repair", None)


async def test_handlers_change_while_processes_live(dsn: str, mode: Options, client: MakeClient) -> None:
    """New code of a namespace takes over the processes of the old one: state, history and timers."""

    class State(BaseModel):
        version: int
        added: str = "default"

    old, new = Namespace("ns"), Namespace("ns", state=State)

    @old.init
    async def init(process: Process) -> None:
        process.state = {"version": 1}
        process.emit("opened")
        process.set_timer(after=timedelta(milliseconds=200))

    @old.call
    async def version(process: Process) -> int:
        return process.state["version"]

    @old.timeout
    async def too_soon(process: Process) -> None:
        raise RuntimeError("of the new code")

    @new.call(name="version")
    async def version_of_new(process: Process[State]) -> str:
        process.state.version = 2
        return process.state.added

    @new.timeout
    async def fire(process: Process[State]) -> None:
        process.emit("fired", added=process.state.added)

    dispatcher = await client()
    async with Engine(dsn, [old], **mode):
        await dispatcher.start("ns", "p")
        assert await dispatcher.call("ns", "p", "version") == 1
    async with Engine(dsn, [new], **mode):
        assert await dispatcher.call("ns", "p", "version") == "default"
        process = await until(lambda: dispatcher.get("ns", "p"), lambda process: process.last_event_id == 2)
    assert [event.name for event in process.history] == ["opened", "fired"]
    assert process.state == {"version": 2, "added": "default"}


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def raise_(error: BaseException) -> None:
    raise error


_ENDS: dict[str, Callable[[], Awaitable[None]]] = {
    "cancels itself": cancel_itself,
    "CancelledError": lambda: raise_(asyncio.CancelledError()),
    "GeneratorExit": lambda: raise_(GeneratorExit()),
    "KeyboardInterrupt": lambda: raise_(KeyboardInterrupt()),
    "SystemExit": lambda: raise_(SystemExit(3)),
    "StopAsyncIteration": lambda: raise_(StopAsyncIteration()),
    "BaseExceptionGroup": lambda: raise_(BaseExceptionGroup("one", [GeneratorExit()])),
}


@pytest.mark.parametrize("end", _ENDS)
async def test_a_step_whose_end_is_known_is_ended(serve: MakeClient, end: str) -> None:
    """Whatever ends a handler, its caller gets the failure at once, and its process can be repaired."""
    namespace = Namespace("ns", step_timeout=timedelta(minutes=10))

    @namespace.init
    async def init(process: Process) -> None:
        pass

    @namespace.call
    async def fail(process: Process) -> None:
        await _ENDS[end]()

    @namespace.call
    async def work(process: Process) -> str:
        await asyncio.sleep(0)
        return "done"

    client = await serve(namespace)
    await client.start("ns", "p")
    for _ in range(2):
        with pytest.raises(HandlerFailed, match="CancelledError" if end == "cancels itself" else end):
            await client.call("ns", "p", "fail", timeout=10)
        await client.simple_repair("ns", "p")
        assert await client.call("ns", "p", "work", timeout=10) == "done"


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, StopAsyncIteration]
)
async def test_a_sync_step_whose_end_is_known_is_ended(
    serve: MakeClient, error: type[BaseException]
) -> None:
    """The same of what a function raises in its thread."""
    namespace = Namespace("ns", step_timeout=timedelta(minutes=10))

    @namespace.init
    def init(process: Process) -> None:
        pass

    @namespace.call
    def fail(process: Process) -> None:
        raise error

    client = await serve(namespace)
    await client.start("ns", "p")
    with pytest.raises(HandlerFailed, match=error.__name__):
        await client.call("ns", "p", "fail", timeout=10)


def _forked() -> int:
    """The exit status of a child that comes back from the handler, which sees -1; 14 seconds at most."""
    child = os.fork()
    if child == 0:
        # Should it go on as a worker, nobody would end it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(14)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it is what is tested
@pytest.mark.parametrize("way", ["async", "sync"])
async def test_a_child_that_a_handler_forks_is_no_worker(serve: MakeClient, way: str) -> None:
    """It ends when it comes back; the step is that of the parent, once."""
    namespace = Namespace("ns", state=int)

    @namespace.init
    async def init(process: Process[int]) -> None:
        process.state = 0

    @namespace.call(name="async")
    async def fork(process: Process[int]) -> int:
        process.state += 1
        return _forked()

    @namespace.call(name="sync")
    def fork_in_thread(process: Process[int]) -> int:
        process.state += 1
        return _forked()

    client = await serve(namespace)
    await client.start("ns", "p")
    assert await client.call("ns", "p", way) == forks.STATUS
    assert (await client.get("ns", "p")).state == 1
