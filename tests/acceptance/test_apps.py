"""Apps: the lifespan around all steps, the resources of handlers, and middleware."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from progressor import (
    App,
    CallNext,
    Client,
    Engine,
    HandlerFailed,
    Intent,
    InvalidRequest,
    LifespanFailed,
    Namespace,
    Process,
    Reject,
    Rejected,
    RetryPolicy,
    StepView,
    StorageUnavailable,
    SyncClient,
    Task,
    engine as engine_module,
)
from progressor.handlers.running import threads
from tests.acceptance.conftest import MakeClient, Options, of_a_client
from tests.acceptance.support import DEADLINE, NS, Gate, until_events, until_status


class Sent:
    """A resource that keeps what handlers give it."""

    def __init__(self) -> None:
        self.letters: list[str] = []

    def send(self, text: str) -> None:
        self.letters.append(text)


def yields(
    given: Mapping[str, Any] | None, order: list[str] | None = None
) -> Callable[[App], AbstractAsyncContextManager[Mapping[str, Any] | None]]:
    """A lifespan that yields these resources, and notes when it begins and ends."""

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncIterator[Mapping[str, Any] | None]:
        if order is not None:
            order.append("entered")
        yield given
        if order is not None:
            order.append("left")

    return lifespan


def letters(name: str = NS) -> Namespace:
    """A namespace whose handlers of every kind take the resource `sent`."""
    namespace = Namespace(name, retry_policy=RetryPolicy(max_attempts=1))

    @namespace.init
    async def begin(process: Process, args: Any = None, *, sent: Sent) -> None:
        sent.send("init")
        process.set_timer(after=timedelta(0))

    @namespace.timeout
    def fire(process: Process, *, sent: Sent) -> None:
        sent.send("timeout")
        process.emit("fired")
        raise KeyError("a letter is lost")

    @namespace.repair
    async def mend(process: Process, *, prefix: str = "re", sent: Sent) -> str:
        sent.send("repair")
        process.unset_timer()
        return prefix

    @namespace.call
    async def say(process: Process, args: str, *, sent: Sent) -> str:
        sent.send(args)
        return args

    @namespace.call
    def shout(process: Process, args: str, *, sent: Sent, other: str) -> str:
        sent.send(args.upper() + other)
        return args.upper()

    return namespace


async def test_every_kind_of_handler_gets_its_resources(
    dsn: str, mode: Options, side: str, client: MakeClient
) -> None:
    """Async and sync ones, by the names of their keyword-only parameters; others are left alone."""
    sent = Sent()
    app = App([letters()], lifespan=yields({"sent": sent, "other": "!", "unused": object()}))
    async with Engine(dsn, app, **mode) as engine:
        asking = engine.client if side == "inside" else await client()
        await asking.start(NS, "p")
        await until_status(asking, "p", "error")
        assert await asking.repair(NS, "p") == "re"
        for _ in range(3):
            assert await asking.call(NS, "p", "say", "hello") == "hello"
        assert await asking.call(NS, "p", "shout", "ho") == "HO"
    assert sent.letters == ["init", "timeout", "repair", "hello", "hello", "hello", "HO!"]


async def test_two_engines_give_the_same_namespace_their_own(dsn: str, mode: Options) -> None:
    """In one OS process, at once: the binding is the engine's, and the namespace is as it was."""
    namespace, here, there = letters(), Sent(), Sent()
    first = App([namespace], lifespan=yields({"sent": here, "other": "1"}))
    second = App([namespace], lifespan=yields({"sent": there, "other": "2"}))
    async with Engine(dsn, first, **mode) as one:
        await one.client.put(NS, "p", state=0)
        async with Engine(dsn, second, **mode) as two:
            for number in range(5):
                await one.client.call(NS, "p", "say", f"a{number}")
                await one.client.call(NS, "p", "shout", f"a{number}")
                await two.client.call(NS, "p", "say", f"b{number}")
                await two.client.call(NS, "p", "shout", f"b{number}")
    assert here.letters == [each for n in range(5) for each in (f"a{n}", f"A{n}1")]
    assert there.letters == [each for n in range(5) for each in (f"b{n}", f"B{n}2")]
    with pytest.raises(InvalidRequest, match="sent for begin of"):
        Engine(dsn, [namespace])


async def test_the_lifespan_is_around_all_steps(dsn: str, mode: Options, client: MakeClient) -> None:
    """It begins before anything is served, and ends when the last step has ended."""
    order: list[str] = []
    namespace, gate, asking = Namespace(NS), Gate(), await client()

    @namespace.init
    async def begin(process: Process, *, order: list[str]) -> None:
        await gate.pass_through()
        order.append("step")

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[Mapping[str, Any]]:
        assert app.namespaces == (namespace,)
        assert (await asking.health()).workers == 0
        order.append("entered")
        yield {"order": order}
        # It leaves last: a lifespan that hangs leaves no worker behind.
        assert (await asking.health()).workers == 0
        order.append("left")

    async with Engine(dsn, App([namespace], lifespan=lifespan), **mode):
        starting = asyncio.create_task(asking.start(NS, "p"))
        await gate.entered()
        asyncio.get_running_loop().call_later(0.05, gate.open)
    assert order == ["entered", "step", "left"]
    await starting


async def test_an_engine_has_a_lifespan_each_time_it_is_entered(dsn: str, mode: Options) -> None:
    """An engine may be entered again, once it is left."""
    order: list[str] = []
    engine = Engine(dsn, App([Namespace(NS)], lifespan=yields(None, order)), **mode)
    for _ in range(2):
        async with engine:
            order.append("serves")
    assert order == ["entered", "serves", "left"] * 2


async def test_an_error_of_the_block_leaves_the_lifespan_too(dsn: str, mode: Options) -> None:
    """Its code behind the yield runs, whatever has happened; the error passes."""
    order: list[str] = []
    app = App([Namespace(NS)], lifespan=yields(None, order))
    with pytest.raises(ZeroDivisionError):
        async with Engine(dsn, app, **mode):
            raise ZeroDivisionError
    serves = asyncio.Event()
    running = asyncio.create_task(_serve_for_ever(Engine(dsn, app, **mode), serves))
    await serves.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert order == ["entered", "left"] * 2


async def _serve_for_ever(engine: Engine, serves: asyncio.Event) -> None:
    async with engine:
        serves.set()
        await asyncio.Event().wait()


async def test_a_start_that_fails_half_way_leaves_the_lifespan(
    dsn: str, mode: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stops the engine after the lifespan has begun."""
    order: list[str] = []
    namespace = Namespace(NS)

    def too_long(_namespace: Namespace) -> dict[str, Any]:
        raise RuntimeError("no schemas today")

    monkeypatch.setattr(engine_module, "storable_schemas", too_long)
    with pytest.raises(RuntimeError, match="no schemas today"):
        async with Engine(dsn, App([namespace], lifespan=yields({}, order)), **mode):
            raise AssertionError("it serves")
    assert order == ["entered", "left"]


async def test_a_start_that_fails_at_its_end_leaves_the_lifespan(
    dsn: str, mode: Options, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the operating system gives no thread, say: no worker is left that beats and claims."""
    order: list[str] = []

    def no_thread(_lag: object) -> None:
        raise RuntimeError("can't start new thread")

    asking = await client()
    monkeypatch.setattr(engine_module.LoopLag, "start", no_thread)
    engine = Engine(dsn, App([Namespace(NS)], lifespan=yields({}, order)), **mode)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await engine.__aenter__()
    assert order == ["entered", "left"]
    assert (await asking.health()).workers == 0
    assert engine.node.is_closed


@asynccontextmanager
async def does_not_begin(_app: App) -> AsyncIterator[None]:
    raise ConnectionError("no mail server at smtp://me:secret@mail")
    yield


@asynccontextmanager
async def does_not_end(_app: App) -> AsyncIterator[None]:
    yield
    raise ConnectionError("the mail server is gone")


async def test_a_lifespan_that_does_not_begin(dsn: str, mode: Options, client: MakeClient) -> None:
    """The error names the lifespan, its place and the cause, without passwords; nothing is served."""
    asking = await client()
    with pytest.raises(
        LifespanFailed,
        match=r"^lifespan .*test_apps\.does_not_begin failed on entering: ConnectionError: "
        r"no mail server at smtp://me:\*\*\*@mail \(test_apps\.py, line \d+\)$",
    ) as caught:
        async with Engine(dsn, App([Namespace(NS)], lifespan=does_not_begin), **mode):
            raise AssertionError("it serves")
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert NS not in [each.name for each in await asking.namespaces()]


async def test_a_lifespan_that_does_not_end(
    dsn: str, mode: Options, client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine has left all the same; the error is logged and raised."""
    asking = await client()
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(LifespanFailed, match=r"does_not_end failed on leaving: ConnectionError: the mail"),
    ):
        async with Engine(dsn, App([Namespace(NS)], lifespan=does_not_end), **mode) as engine:
            assert (await asking.health()).workers == 1
    assert (await asking.health()).workers == 0
    assert "lifespan failed lifespan=" in caplog.text
    with pytest.raises(StorageUnavailable, match=r"closed"):
        await engine.client.start(NS, "p")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["sent"], "must give resources by name, {'http': client} say, or None, not list"),
        ({"not a name": 1}, "must be an identifier, not 'not a name'"),
        ({7: 1}, "must be an identifier, not 7"),
        ({"connection": 1}, "no resource can be named connection"),
        ({"process": 1}, "no resource can be named process"),
        ({"args": 1}, "no resource can be named args"),
    ],
)
async def test_resources_that_cannot_be_handed_out(dsn: str, given: Any, says: str) -> None:
    """The lifespan is left, and the error says what it may yield."""
    order: list[str] = []
    with pytest.raises(InvalidRequest) as caught:
        async with Engine(dsn, App([Namespace(NS)], lifespan=yields(given, order))):
            raise AssertionError("it serves")
    assert says in str(caught.value)
    assert caught.value.field == "resources"
    assert order == ["entered", "left"]


async def test_all_that_is_missing_is_named_at_once(dsn: str) -> None:
    """Each function with its namespace and parameter, and what the lifespan gives."""
    order: list[str] = []
    app = App([letters(), letters("mail")], lifespan=yields({"other": 1, "more": 2}, order))
    with pytest.raises(InvalidRequest) as caught:
        async with Engine(dsn, app):
            raise AssertionError("it serves")
    assert caught.value.field == "resources"
    assert str(caught.value).startswith("handlers take resources that are not given: sent for begin of ")
    for name in ("begin", "fire", "mend", "say", "shout"):
        for namespace in (NS, "mail"):
            assert f"sent for {name} of {namespace}" in str(caught.value)
    assert str(caught.value).endswith("World(resources=...), gives other, more")
    assert order == ["entered", "left"]


@asynccontextmanager
async def no_context(_app: App) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("given", [3, no_context.__wrapped__, contextmanager, asyncio.sleep])  # type: ignore[attr-defined]
async def test_what_is_no_lifespan(dsn: str, given: Any) -> None:
    """A function that nobody decorated, say: known at once, or when it is called."""
    with pytest.raises(InvalidRequest, match=r"@asynccontextmanager") as caught:
        async with Engine(dsn, App([Namespace(NS)], lifespan=given)):
            raise AssertionError("it serves")
    assert caught.value.field == "lifespan"


def test_clients_take_an_app_and_never_enter_it(dsn: str, mode: Options) -> None:
    """They serve no handlers, so they need no resources."""
    app = App([letters()], lifespan=does_not_begin)
    Client(dsn, app, **of_a_client(mode))
    with SyncClient(dsn, app, **of_a_client(mode)) as client:
        assert client.health().ok
    with pytest.raises(InvalidRequest, match="two namespaces have the same name"):
        Client(dsn, App([letters(), letters()]))


# Middleware.


def serving(*middleware: Any, order: list[str]) -> App:
    namespace = Namespace(NS, step_timeout=timedelta(seconds=1), retry_policy=RetryPolicy(max_attempts=2))

    @namespace.init
    async def begin(process: Process) -> None:
        order.append("init")

    @namespace.call
    async def say(process: Process, args: str) -> str:
        order.append(args)
        return args

    @namespace.call
    def shout(process: Process, args: str) -> str:
        order.append(args)
        return args.upper()

    @namespace.call
    async def ring(process: Process) -> None:
        process.set_timer(after=timedelta(0))

    @namespace.timeout
    async def fire(process: Process) -> None:
        order.append("timeout")
        process.emit("fired")

    return App([namespace], middleware=middleware)


async def test_middleware_is_around_every_handler(
    dsn: str, mode: Options, side: str, client: MakeClient
) -> None:
    """The first of the list is the outermost; it sees the step, not its arguments."""
    order: list[str] = []
    views: list[StepView] = []

    async def outer(step: StepView, call_next: CallNext) -> Intent:
        views.append(step)
        order.append("outer")
        intent = await call_next(step)
        order.append("outer ends")
        return intent

    class Inner:
        async def __call__(self, step: StepView, call_next: CallNext) -> Intent:
            order.append("inner")
            return await call_next()

    async with Engine(dsn, serving(outer, Inner(), order=order), **mode) as engine:
        asking = engine.client if side == "inside" else await client()
        await asking.start(NS, "p")
        assert await asking.call(NS, "p", "say", "hello") == "hello"
        assert await asking.call(NS, "p", "say", "hello again") == "hello again"
        assert await asking.call(NS, "p", "shout", "ho") == "HO"
        await asking.call(NS, "p", "ring")
        await until_events(asking, "p", "fired")
    around = ["outer", "inner", "{}", "outer ends"]
    said = ["init", "hello", "hello again", "ho", None, "timeout"]
    assert order == [each.format(one) for one in said for each in around if one or each != "{}"]
    assert [(each.task_type, each.name, each.attempt) for each in views] == [
        ("init", None, 1),
        ("call", "say", 1),
        ("call", "say", 1),
        ("call", "shout", 1),
        ("call", "ring", 1),
        ("timeout", None, 1),
    ]
    assert {(each.namespace, each.process_id) for each in views} == {(NS, "p")}
    assert [each.task_id for each in views] == sorted({each.task_id for each in views})
    assert "hello" not in repr(views)


async def test_middleware_may_refuse(dsn: str, mode: Options, side: str, client: MakeClient) -> None:
    """Its Reject is the handler's: the caller gets it, and the process lives on."""
    order: list[str] = []

    async def closed(step: StepView, call_next: CallNext) -> Intent:
        if step.name == "shout":
            raise Reject("be quiet", until=8)
        return await call_next(step)

    async with Engine(dsn, serving(closed, order=order), **mode) as engine:
        asking = engine.client if side == "inside" else await client()
        await asking.start(NS, "p")
        with pytest.raises(Rejected, match="be quiet") as caught:
            await asking.call(NS, "p", "shout", "ho")
        assert caught.value.details == {"until": 8}
        assert await asking.call(NS, "p", "say", "hello") == "hello"
    assert order == ["init", "hello"]


async def twice(step: StepView, call_next: CallNext) -> Intent:
    await call_next(step)
    return await call_next(step)


async def never(step: StepView, call_next: CallNext) -> Any:
    return None


async def another(step: StepView, call_next: CallNext) -> Intent:
    await call_next(step)
    return Intent(response=b"1")


async def raises(step: StepView, call_next: CallNext) -> Intent:
    await call_next(step)
    raise LookupError("no such meter")


async def waits(step: StepView, call_next: CallNext) -> Intent:
    await asyncio.sleep(DEADLINE)
    return await call_next(step)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (twice, "MiddlewareFault: middleware twice called call_next twice"),
        (never, "MiddlewareFault: middleware never must return what its call_next returned, or raise"),
        (another, "MiddlewareFault: middleware another must return what its call_next returned, or raise"),
        (raises, "LookupError: no such meter"),
        (waits, "StepTimeout: the handler ran longer than step_timeout (1 s)"),
    ],
)
async def test_a_fault_of_middleware_is_one_of_the_handler(
    dsn: str, mode: Options, fault: Any, says: str
) -> None:
    """Nothing of the step is saved, and the process breaks as it would by its handler."""

    async def on_calls(step: StepView, call_next: CallNext) -> Intent:
        return await (fault(step, call_next) if step.name == "say" else call_next(step))

    on_calls.__qualname__ = fault.__qualname__
    order: list[str] = []
    async with Engine(dsn, serving(on_calls, order=order), **mode) as engine:
        await engine.client.start(NS, "p")
        with pytest.raises(HandlerFailed) as caught:
            await engine.client.call(NS, "p", "say", "hello")
        assert caught.value.error == says


async def test_middleware_sees_each_try_of_a_timer(dsn: str, mode: Options) -> None:
    """And a raw handler, and no timer that an operator sets: that runs no handler."""
    views: list[tuple[str, int]] = []
    tried = asyncio.Event()

    async def note(step: StepView, call_next: CallNext) -> Intent:
        views.append((step.task_type, step.attempt))
        if step.attempt > 1:
            tried.set()
        return await call_next(step)

    class Raw:
        async def process(self, task: Task, process: Process) -> Intent:
            if task.task_type == "timeout" and not task.attempts_count:
                raise KeyError("try again")
            return Intent()

    policy = RetryPolicy(initial_interval=timedelta(milliseconds=10))
    app = App([Namespace(NS, handler=Raw(), retry_policy=policy)], middleware=[note])
    async with Engine(dsn, app, **mode) as engine:
        await engine.client.start(NS, "p")
        await engine.client.set_timer(NS, "p", after=timedelta(0))
        async with asyncio.timeout(DEADLINE):
            await tried.wait()
    assert views == [("init", 1), ("timeout", 1), ("timeout", 2)]


async def test_no_middleware_refuses_a_step_that_could_not_begin(
    dsn: str, mode: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync handler that found no thread goes back unharmed, whatever middleware makes of exceptions."""
    start, lacking = threading.Thread.start, [True]

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "progressor handler" and lacking:
            lacking.clear()
            raise RuntimeError("can't start new thread")
        start(thread)

    async def polite(step: StepView, call_next: CallNext) -> Intent:
        try:
            return await call_next(step)
        except Exception as error:
            raise Reject("try something else") from error

    threads._threads_of.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    order: list[str] = []
    async with Engine(dsn, serving(polite, order=order), **mode) as engine:
        await engine.client.start(NS, "p")
        assert await engine.client.call(NS, "p", "shout", "ho") == "HO"
    assert (order, lacking) == (["init", "ho"], [])


@pytest.mark.parametrize("given", [3, [3], [App], [lambda _step, call_next: call_next()], [object()]])
def test_what_is_no_middleware(given: Any) -> None:
    """It must be a list of async functions."""
    with pytest.raises(InvalidRequest, match=r"^middleware must be ") as caught:
        App([Namespace(NS)], middleware=given)
    assert caught.value.field == "middleware"
