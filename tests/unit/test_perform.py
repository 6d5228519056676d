"""Any return or raise of a handler becomes an Outcome."""

import asyncio
import enum
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor.errors import InvalidRequest, NonRetryable, Reject
from progressor.handlers.handler import InvalidCall
from progressor.handlers.namespace import Namespace
from progressor.handlers.perform import MAX_ERROR_LENGTH, perform
from progressor.handlers.process import Process
from progressor.handlers.running.deadlines import Deadlines
from progressor.handlers.running.step_task import StepTask
from progressor.handlers.running.waits import Lending, RunningStep
from progressor.loggers import message_of
from progressor.model import Event, Failure, Intent, Outcome, Rejection, Remove, Success, Task, TaskType
from progressor.timers import SetTimer

Body = Callable[[Any], Awaitable[Any]]


class Raw:
    """A raw handler around one coroutine function."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def process(self, task: Any, process: Process[Any]) -> Any:
        return await self._body(process)


def raising(error: BaseException) -> Raw:
    async def body(process: Any) -> Any:
        raise error

    return Raw(body)


def returning(value: Any) -> Raw:
    async def body(process: Any) -> Any:
        return value

    return Raw(body)


@pytest.fixture
def run(make_task: Any, make_snapshot: Any) -> Callable[..., Awaitable[Outcome]]:
    async def run(handler: Any, *, limit: float = 5, **task: Any) -> Outcome:
        deadlines = Deadlines(limit)
        return await perform(handler, make_snapshot(), make_task(**task), deadlines)

    return run


async def test_an_intent_is_a_success(run: Any) -> None:
    """What the handler returns is what is saved."""
    intent = Intent(response=b"1")
    assert await run(returning(intent), limit=1) == Success(intent)


async def test_a_remove_task_needs_no_handler(run: Any) -> None:
    """A remove task removes; the handler is not asked."""
    outcome = await run(raising(AssertionError()), task_type=TaskType.REMOVE)
    assert outcome == Success(Intent(action=Remove()))


async def test_reject_is_a_refusal(run: Any) -> None:
    """Reason and details reach the caller as they were given."""
    outcome = await run(raising(Reject("too little", left=3)))
    assert outcome == Rejection("too little", {"left": 3})


NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize("late", [timedelta(), MOMENT])
async def test_what_begins_at_its_expiry_is_refused(run: Any, late: timedelta) -> None:
    """The handler is not asked; the reason says by when it had to begin."""
    outcome = await run(raising(AssertionError()), running_time=NOON + late, expires_at=NOON)
    when = "2040-01-01T12:00:00+00:00"
    assert outcome == Rejection(f"it was not begun by {when}", {"expires_at": when}, expired=True)


@pytest.mark.parametrize(
    "task",
    [
        {"running_time": NOON - MOMENT, "expires_at": NOON},
        {"running_time": NOON + MOMENT, "expires_at": NOON, "attempts_count": 1},
        {"running_time": NOON},
    ],
)
async def test_what_began_in_time_runs(run: Any, task: dict[str, Any]) -> None:
    """Also once more after its worker was lost, however late that is."""
    assert await run(returning(Intent()), **task) == Success(Intent())


async def test_details_arrive_as_json(run: Any) -> None:
    """Details are made JSON values at once, so that saving them cannot fail."""
    outcome = await run(raising(Reject("later", until=datetime(2026, 1, 1), ids=(1, 2))))
    assert outcome == Rejection("later", {"until": "2026-01-01T00:00:00", "ids": [1, 2]})


@pytest.mark.parametrize("value", [object(), float("nan"), "\x00", "\ud800"])
async def test_details_that_are_not_json_fail(run: Any, value: Any) -> None:
    """A detail that has no JSON form is the handler's mistake, and is named."""
    outcome = await run(raising(Reject("no", amount=value)))
    assert isinstance(outcome, Failure)
    assert "Reject.amount" in outcome.error


async def test_an_invalid_call_is_a_refusal(run: Any) -> None:
    """The typed layer's complaint about the request refuses it and names the field."""
    outcome = await run(raising(InvalidCall("args.amount: wrong", field="args.amount")))
    assert outcome == Rejection("args.amount: wrong", {"field": "args.amount"}, invalid=True)


async def test_an_invalid_request_of_the_users_code_is_a_failure(run: Any) -> None:
    """An InvalidRequest from a nested client call is no rejection of this request."""
    outcome = await run(raising(InvalidRequest("inner")))
    assert isinstance(outcome, Failure)
    assert outcome.error == "InvalidRequest: inner"


async def test_an_exception_is_a_failure_with_its_classes(run: Any) -> None:
    """A failure has type and text, and the names that a retry policy compares."""
    outcome = await run(raising(KeyError("plan")))
    assert outcome == Failure("KeyError: 'plan'", ("KeyError", "LookupError", "Exception"))


async def test_an_exception_without_text(run: Any) -> None:
    """Without a text the type stands alone."""
    assert (await run(raising(ValueError()))).error == "ValueError"


async def test_non_retryable(run: Any) -> None:
    """NonRetryable and its subclasses are never tried again."""

    class Fatal(NonRetryable):
        pass

    outcome = await run(raising(Fatal("gone")))
    assert outcome == Failure("Fatal: gone", ("Fatal", "NonRetryable", "Exception"), retryable=False)


async def test_the_text_is_one_that_postgresql_can_store(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """NUL characters and lone surrogates are replaced, and the length is bounded."""
    # A parallel test run cannot carry the logged traceback's surrogate between its processes.
    caplog.set_level(logging.CRITICAL, logger="progressor.handler")
    outcome = await run(raising(ValueError("a\x00b\ud800" + "x" * 10_000)))
    assert outcome.error.startswith("ValueError: a\N{REPLACEMENT CHARACTER}b?x")
    assert len(outcome.error) == MAX_ERROR_LENGTH


async def test_an_exception_whose_text_raises(run: Any) -> None:
    """Even an exception with a broken __str__ is only a failure."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert (await run(raising(Broken()))).error == "Broken: (its text cannot be had)"


async def test_a_half_made_reject_is_a_failure(run: Any) -> None:
    """A subclass of Reject that never called its parent does not break the worker."""

    class Half(Reject):
        def __init__(self) -> None:
            pass

    assert isinstance(await run(raising(Half())), Failure)


class Why(enum.Enum):
    """Reasons of a user, which are no texts."""

    NO_CREDIT = "no credit"


class Declined(Reject):
    """A Reject whose reason is whatever it was made with, and so are its details."""

    def __init__(self, reason: Any, details: Any = None) -> None:
        super().__init__("declined")
        self.reason, self.details = reason, details


class NoText:
    def __str__(self) -> str:
        raise SystemExit


class NoItems(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(("reason", "text"), [(Why.NO_CREDIT, "Why.NO_CREDIT"), (5, "5"), (None, "None")])
async def test_a_reason_that_is_no_text_is_refused_by_its_text(run: Any, reason: Any, text: str) -> None:
    """The handler meant to refuse, so it does."""
    assert await run(raising(Declined(reason))) == Rejection(text, {})


@pytest.mark.parametrize(
    "error",
    [Declined(NoText()), Declined("no", [1]), Declined("no", {"a": NoItems(a=1), "b": float("nan")})],
)
async def test_a_reject_that_cannot_be_read_is_a_failure(run: Any, error: Reject) -> None:
    """Its reason or details raise, whatever they raise: the step has failed."""
    assert isinstance(await run(raising(error)), Failure)


async def test_a_reject_whose_reason_raises_is_a_failure(run: Any) -> None:
    """A property is the user's code too."""

    class Computed(Reject):
        reason = property(lambda self: 1 / 0, lambda self, value: None)  # type: ignore[assignment]

    assert (await run(raising(Computed("no")))).error == "ZeroDivisionError: division by zero"


class OddName(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit


class Nameless(NonRetryable, metaclass=OddName):
    """One that cannot even be named."""


async def test_an_exception_whose_name_raises_is_a_failure(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it can be described but that it is an error, which is still not retried."""
    outcome = await run(raising(Nameless("x")))
    assert outcome == Failure("an error that cannot be described", ("Exception",), retryable=False)
    assert [message_of(record) for record in caplog.records] == ["handler failed"]


async def test_an_exception_whose_class_raises_is_a_failure(run: Any) -> None:
    """Even to ask an error what it is may run code of the user."""

    class Classless(Exception):
        @property
        def __class__(self) -> Any:
            raise RuntimeError("no class")

    assert isinstance(await run(raising(Classless())), Failure)


async def test_a_text_of_an_odd_class_is_plain(run: Any) -> None:
    """A subclass of str that an exception returns for its text is a str in its outcome."""

    class Odd(str):
        def __format__(self, spec: str) -> str:
            raise RuntimeError

        def __len__(self) -> int:
            raise RuntimeError

    class Told(Exception):
        def __str__(self) -> str:
            return Odd("hey")

    outcome = await run(raising(Told()))
    assert outcome.error == "Told: hey"
    assert type(outcome.error) is str


async def test_sys_exit_is_a_failure(run: Any) -> None:
    """A handler cannot end the worker."""
    assert await run(raising(SystemExit(1))) == Failure("SystemExit: 1", ("SystemExit",))


class Panic(BaseException):
    """As a library written in Rust raises it."""


async def test_a_panic_is_a_failure(run: Any) -> None:
    """What is no Exception is a failure all the same, with its own name to compare."""
    assert await run(raising(Panic("index out of bounds"))) == Failure(
        "Panic: index out of bounds", ("Panic",)
    )


async def test_a_panic_in_a_group_is_a_failure(run: Any) -> None:
    """A task group hands on what a task of it raised, whatever it is."""

    async def fail() -> None:
        raise Panic

    async def body(process: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    outcome = await run(Raw(body))
    assert outcome.error_types == ("BaseExceptionGroup",)


async def refuses_in_a_group(process: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raising(Reject("no credit")).process(None, process))


async def fails_beside_it(process: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(refuses_in_a_group(process))
        group.create_task(raising(KeyError("plan")).process(None, process))


@pytest.mark.parametrize("body", [refuses_in_a_group, fails_beside_it])
async def test_a_refusal_in_a_group_is_a_failure(run: Any, body: Body) -> None:
    """The group raises another error than its task did."""
    assert (await run(Raw(body))).error_types[0] == "ExceptionGroup"


@pytest.mark.parametrize(("body", "refuses"), [(refuses_in_a_group, True), (fails_beside_it, False)])
async def test_a_refusal_taken_out_of_its_group_is_one(run: Any, body: Body, *, refuses: bool) -> None:
    """As the docs advise; beside another error of the group it is still a failure."""

    async def takes_out(process: Any) -> None:
        try:
            await body(process)
        except* Reject as found:
            raise found.exceptions[0] from None

    outcome = await run(Raw(takes_out))
    assert (outcome == Rejection("no credit", {})) is refuses
    assert isinstance(outcome, Failure) is not refuses


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        GeneratorExit(),
        StopAsyncIteration(),
        asyncio.CancelledError(),
        BaseExceptionGroup("two", [asyncio.CancelledError(), KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_ends_a_coroutine_or_a_program_is_a_failure(run: Any, error: BaseException) -> None:
    """Raised by the handler itself, it is an outcome as any other error."""
    outcome = await run(raising(error))
    assert isinstance(outcome, Failure)
    assert outcome.error_types[0] == type(error).__name__


@pytest.mark.parametrize("python_own", [True, False])
async def test_ctrl_c_passes_through(
    make_task: Any, make_snapshot: Any, monkeypatch: pytest.MonkeyPatch, *, python_own: bool
) -> None:
    """It is for those who run the worker, whether Python's own handler raises it or one of theirs."""

    class Interrupted(KeyboardInterrupt):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    async def body(process: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler if python_own else interrupt)
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            await perform(Raw(body), make_snapshot(), make_task(), Deadlines(5))
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.type is (KeyboardInterrupt if python_own else Interrupted)


async def test_an_exit_by_a_signal_passes_through(make_task: Any, make_snapshot: Any) -> None:
    """The application's own way to end on SIGTERM ends it, though a handler computes at that moment."""

    async def body(process: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with pytest.raises(SystemExit):
            await perform(Raw(body), make_snapshot(), make_task(), Deadlines(5))
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ctrl_c_of_python() -> Iterator[None]:
    """Have Python's own handler of SIGINT, of which no frame of a traceback shows that it raised."""
    # Within a test: the runner of its event loop has put its own in the place of this one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def failed_by_interrupt(run: Any, handler: Any) -> bool:
    outcome = await run(handler, name="interrupted")
    return isinstance(outcome, Failure) and outcome.error_types[0] == "KeyboardInterrupt"


async def test_an_interrupt_of_a_plain_function_is_a_failure(run: Any) -> None:
    """It comes from the thread of the function, and Ctrl-C from the main thread only."""
    namespace = Namespace("threads")

    @namespace.call
    def interrupted(process: Process[None]) -> None:
        raise KeyboardInterrupt

    with ctrl_c_of_python():
        assert await failed_by_interrupt(run, namespace)


async def test_an_interrupt_in_a_loop_of_another_thread_is_a_failure(run: Any) -> None:
    """An engine in a thread goes on: no Ctrl-C is raised there."""
    handler = raising(KeyboardInterrupt())
    with ctrl_c_of_python():
        assert await asyncio.to_thread(lambda: asyncio.run(failed_by_interrupt(run, handler)))


async def test_the_end_of_a_coroutine_passes_through(make_task: Any, make_snapshot: Any) -> None:
    """A step that is closed because nobody runs it any more has no outcome."""

    async def body(process: Any) -> None:
        await asyncio.sleep(0)

    step = perform(Raw(body), make_snapshot(), make_task(), Deadlines(5))
    step.send(None)
    step.close()


# Cancellations in the task that runs steps: the handler's own, and those of others.


async def cancels_itself(process: Any) -> None:
    current_task().cancel()
    await asyncio.sleep(0)


async def is_cancelled_by_its_child(process: Any) -> None:
    parent = current_task()

    async def cancel() -> None:
        parent.cancel()

    await asyncio.gather(cancel(), asyncio.Event().wait())


async def is_cancelled_by_its_callback(process: Any) -> None:
    asyncio.get_running_loop().call_soon(current_task().cancel)
    await asyncio.Event().wait()


async def is_cancelled_by_its_thread(process: Any) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.gather(
        asyncio.to_thread(loop.call_soon_threadsafe, current_task().cancel), asyncio.Event().wait()
    )


def current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.fixture
def run_in_step(run: Any, lending: Lending) -> Callable[..., Awaitable[Outcome]]:
    """Perform in a task of steps, as a worker does."""

    async def run_in_step(body: Body, **options: Any) -> Outcome:
        with RunningStep(lending, Task("billing", "acme", 1, TaskType.CALL)):
            return await run(Raw(body), **options)

    return run_in_step


@pytest.fixture
async def lending() -> Lending:
    async def nothing(namespace: str, process_no: int) -> bool:
        return False

    return Lending((), (), nothing)


@pytest.mark.parametrize(
    "body",
    [
        cancels_itself,
        is_cancelled_by_its_child,
        is_cancelled_by_its_callback,
        is_cancelled_by_its_thread,
    ],
)
async def test_a_step_that_cancels_itself_has_failed(run_in_step: Any, body: Body) -> None:
    """Its end is known at once, and the step after it begins without a cancellation."""

    async def steps() -> None:
        outcome = await run_in_step(body)
        assert outcome == Failure("CancelledError", ("CancelledError",))
        assert current_task().cancelling() == 0
        assert await run_in_step(returning(Intent())._body) == Success(Intent())
        await asyncio.sleep(0)

    await StepTask(steps())


async def test_a_cancellation_that_was_not_raised_yet_is_dropped(run_in_step: Any) -> None:
    """A handler that cancels itself and returns has returned."""

    async def body(process: Any) -> Intent:
        current_task().cancel()
        return Intent()

    async def steps() -> None:
        assert await run_in_step(body) == Success(Intent())
        assert current_task().cancelling() == 0
        await asyncio.sleep(0)

    await StepTask(steps())


async def test_what_cancels_itself_after_its_time_timed_out(run_in_step: Any) -> None:
    """The outcome is the StepTimeout, and no cancellation is left."""

    async def body(process: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await cancels_itself(process)

    async def steps() -> None:
        outcome = await run_in_step(body, limit=0.005)
        assert outcome.error_types == ("StepTimeout", "TimeoutError")
        assert current_task().cancelling() == 0

    await StepTask(steps())


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_stop_passes_through_a_handler(run_in_step: Any, *, is_stopped: bool) -> None:
    """Whoever stops the task has no outcome, even if the handler cancels itself meanwhile."""
    begun = asyncio.Event()

    async def body(process: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            current_task().cancel()

    step = StepTask(run_in_step(body))
    await begun.wait()
    if is_stopped:
        step.stop()
    else:
        step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step


async def test_what_a_handler_left_behind_cancels_nothing(run_in_step: Any) -> None:
    """The next step in the same task is none of its business."""
    go_on, reached = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Task[bool]] = []

    async def leaves(process: Any) -> Intent:
        step = current_task()

        async def cancel() -> bool:
            await go_on.wait()
            return step.cancel()

        left.append(asyncio.create_task(cancel()))
        return Intent()

    async def goes_on(process: Any) -> Intent:
        go_on.set()
        assert not await left[0]
        reached.set()
        return Intent()

    async def steps() -> None:
        await run_in_step(leaves)
        assert await run_in_step(goes_on) == Success(Intent())

    await StepTask(steps())
    assert reached.is_set()


@pytest.mark.parametrize("value", [None, {"a": 1}, Success(Intent())])
async def test_anything_but_an_intent_is_a_failure(run: Any, value: Any) -> None:
    """A raw handler must return an Intent."""
    outcome = await run(returning(value))
    assert outcome.error == (f"TypeError: a handler must return an Intent, not {type(value).__name__}")


@pytest.mark.parametrize(
    ("intent", "text"),
    [
        (Intent(response="1"), "Intent.response must be bytes or None, not str"),  # type: ignore[arg-type]
        (Intent(aux_state={}), "Intent.aux_state must be bytes or None, not dict"),  # type: ignore[arg-type]
        (Intent(action="remove"), "Intent.action must be SetTimer, UnsetTimer, a tuple of these, Remove"),  # type: ignore[arg-type]
        (Intent(events=({},)), "Intent.events must hold Events, not dict"),  # type: ignore[arg-type]
        (Intent(events=(Event("x"),)), "Event.payload must be bytes, not str"),
        (Intent(metadata={"a": float("inf")}), "Intent.metadata.a must not be NaN or Infinity"),
        (Intent(events=(Event(b"", {"name": "\x00"}),)), "Event.metadata.name must not contain"),
    ],
)
async def test_an_intent_that_cannot_be_saved_is_a_failure(run: Any, intent: Intent, text: str) -> None:
    """A raw handler's wrong intent fails its own step, not the batch that it is saved with."""
    outcome = await run(Namespace("raw", handler=returning(intent)))
    assert isinstance(outcome, Failure)
    assert text in outcome.error


async def test_a_raw_intent_is_normalised(run: Any) -> None:
    """Lists of events and JSON-able metadata of a raw handler are taken as meant."""
    intent = Intent(events=[Event(b"1", {"at": datetime(2026, 1, 1)})], metadata={"n": (1,)})  # type: ignore[arg-type]
    outcome = await run(Namespace("raw", handler=returning(intent)))
    saved = outcome.intent
    assert saved.events == (Event(b"1", {"at": "2026-01-01T00:00:00"}),)
    assert saved.metadata == {"n": [1]}


# Time


async def test_step_timeout_is_a_failure_of_its_own(run: Any) -> None:
    """A handler that runs too long is cancelled, and the text names the option."""

    async def body(process: Any) -> Any:
        await asyncio.Event().wait()

    outcome = await run(Raw(body), limit=0.005)
    assert outcome == Failure(
        "StepTimeout: the handler ran longer than step_timeout (0.005 s)",
        ("StepTimeout", "TimeoutError"),
    )


async def test_a_timeout_of_the_users_own_is_told_apart(run: Any) -> None:
    """A TimeoutError that the user's code raised is that, and not a StepTimeout."""

    async def body(process: Any) -> Any:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    outcome = await run(Raw(body))
    assert outcome.error == "TimeoutError"
    assert outcome.error_types == ("TimeoutError", "OSError", "Exception")


@pytest.mark.parametrize("after", [Intent(), ValueError("clean-up"), Reject("too late"), Panic("clean-up")])
async def test_a_handler_that_swallows_its_cancellation_timed_out_all_the_same(
    run: Any, after: Any
) -> None:
    """Whatever a handler does once its time is over, the outcome is the StepTimeout."""

    async def body(process: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if isinstance(after, BaseException):
                raise after from None
            return after

    outcome = await run(Raw(body), limit=0.005)
    assert outcome.error.startswith("StepTimeout: ")


async def test_cancellation_from_outside_propagates(run: Any) -> None:
    """A worker that is told to leave is not held up by an outcome."""
    begun = asyncio.Event()

    async def body(process: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    step = asyncio.create_task(run(Raw(body)))
    await begun.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step


async def test_a_cancellation_from_within_is_a_failure(run: Any) -> None:
    """A handler that awaits something cancelled has failed; its worker goes on."""

    async def body(process: Any) -> Any:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    assert (await run(Raw(body))).error == "CancelledError"


async def test_a_blocked_sync_handler_is_dropped_at_its_timeout(run: Any) -> None:
    """A sync handler that blocks keeps its thread, but neither the loop nor the step."""
    namespace, release = Namespace("slow"), threading.Event()

    @namespace.call
    def block(process: Process[None]) -> None:
        release.wait()

    try:
        outcome = await run(namespace, name="block", limit=0.01)
    finally:
        release.set()
    assert outcome.error.startswith("StepTimeout: ")


# What the log says


async def test_a_failure_is_logged_without_payloads(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One constant line with the traceback and the ids of the task."""
    await run(raising(ValueError("no")), name="pay", args=b'{"card": "no-4111"}')
    (record,) = caplog.records
    assert (record.levelno, message_of(record)) == (logging.ERROR, "handler failed")
    facts = {name: getattr(record, name) for name in ("namespace", "process_id", "task_type")}
    assert facts == {"namespace": "billing", "process_id": "acme", "task_type": "call"}
    assert record.task_id == 7  # type: ignore[attr-defined]
    assert record.exc_info
    assert "no-4111" not in caplog.text


async def test_a_refusal_is_not_logged(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A rejection is business, not trouble."""
    await run(raising(Reject("no")))
    assert not caplog.records


# The raw view


async def test_a_raw_handler_sees_bytes(make_task: Any, make_snapshot: Any) -> None:
    """A raw handler gets state, context and payloads as they are stored."""
    seen: dict[str, Any] = {}

    async def body(process: Process[Any]) -> Intent:
        seen.update(state=process.state, context=process.context, payload=process.history[0].payload)
        return Intent()

    process = make_snapshot(aux_state=b"\xff", history=(Event(b"123"),))
    await perform(Raw(body), process, make_task(context=b"{}"), Deadlines(5))
    assert seen == {"state": b"\xff", "context": b"{}", "payload": b"123"}


async def test_a_raw_handler_answers_with_its_intent_only(run: Any) -> None:
    """emit and the like would be lost beside a returned Intent, so they are refused."""

    async def body(process: Process[Any]) -> Intent:
        process.set_timer(after=timedelta(1))
        return Intent(action=SetTimer(after=timedelta(2)))

    outcome = await run(Raw(body))
    assert "a raw handler returns it in its Intent" in outcome.error
