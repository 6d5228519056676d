"""The seam between the engine and the user's code: any return or raise becomes an Outcome.

Rule: a handler cannot break the worker that runs it, or hold its process longer than it runs. Only
exceptions for the worker pass through: a stop, Ctrl-C, NoThread, after which no handler has begun, and
TransactionFailed, after which it is to run again.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from functools import partial
from traceback import walk_tb
from typing import Any, Final

from progressor.errors import CallCycle, InvalidRequest, NonRetryable, Reject, Undecryptable
from progressor.errors.of_handlers import TransactionFailed
from progressor.handlers.codec import RAW, json_object
from progressor.handlers.handler import Handler, InvalidCall, fields_of
from progressor.handlers.limits import an_intent
from progressor.handlers.process import InvalidContext, Process
from progressor.handlers.running.deadlines import Deadline, Deadlines
from progressor.handlers.running.forks import end_child
from progressor.handlers.running.step_task import StepTask
from progressor.handlers.running.threads import NoThread
from progressor.loggers import Logger
from progressor.model import Failure, Intent, Outcome, Rejection, Remove, Snapshot, Success, Task, TaskType

MAX_ERROR_LENGTH = 2_000

_log = Logger("progressor.handler")

_REMOVED: Final = Success(Intent(action=Remove()))


async def perform(
    handler: Handler,
    process: Snapshot,
    task: Task,
    deadlines: Deadlines,
) -> Outcome:
    """Run the handler for as long as `deadlines` allow, and return its outcome.

    A request that expired before it began is refused here, whoever begins it, and runs nothing.
    NoThread: it did not begin. TransactionFailed: it is not to blame, and is to run again. CancelledError
    and KeyboardInterrupt pass if they stop the worker.
    """
    if task.task_type is TaskType.REMOVE:
        return _REMOVED
    if task.expires_at is not None and _has_expired(task, task.expires_at):
        return _expired(task.expires_at)
    deadline = Deadline(deadlines, task)
    outcome: Outcome
    try:
        with deadline:
            try:
                intent = await handler.process(task, Process(process, task, wire=RAW, shape=None))
            finally:
                end_child()
        # A handler may swallow the cancellation at its deadline and return: it timed out all the same.
        outcome = _timed_out(deadlines.seconds) if deadline.expired else Success(an_intent(intent))
    except BaseException as error:
        if _is_for_worker(error, deadline):
            raise
        outcome = _outcome(error, task, seconds=deadlines.seconds if deadline.expired else None)
    running = deadline.task
    if running.cancelling() and isinstance(running, StepTask) and not running.is_stopped:
        await running.settle()
    return outcome


def _outcome(error: BaseException, task: Task, *, seconds: float | None) -> Outcome:
    """Return the outcome of an error; `seconds` is the limit, if the handler had run out of time."""
    if seconds is None:
        match error:
            case Reject():
                return _rejection(error, task)
            case InvalidCall() | InvalidContext():
                if error.__cause__ is not None:
                    # A codec raised: the request is not of this codec, or the worker lacks its keys.
                    cause = type(error.__cause__).__name__
                    _log.warning("request cannot be decoded", extra=fields_of(task) | {"cause": cause})
                return refusal(error)
            case CallCycle():
                # Steps would wait for each other. None breaks its process, but the developer should know.
                _log_failure(task)
                return refusal(error)
    _log_failure(task)
    return failure(error) if seconds is None else _timed_out(seconds)


def _has_expired(task: Task, at: datetime) -> bool:
    """Return whether a request begins too late; one whose worker was lost has begun before."""
    return task.attempts_count == 0 and task.running_time is not None and task.running_time >= at


def _expired(at: datetime) -> Rejection:
    when = at.astimezone(UTC).isoformat()
    return Rejection(f"it was not begun by {when}", {"expires_at": when}, expired=True)


def refusal(error: InvalidRequest) -> Rejection:
    """Return the rejection of a request that is wrong itself."""
    return Rejection(clean(str(error)), {"field": error.field}, invalid=True)


def _rejection(error: Reject, task: Task) -> Outcome:
    try:
        details = json_object(error.details, field="Reject") if error.details else {}
        return Rejection(clean(error.reason), details)
    except (InvalidRequest, AttributeError) as fault:
        _log_failure(task)
        return failure(fault)


def failure(error: BaseException) -> Failure:
    """Return the failure of a step that raised; one that met a value it cannot decrypt is not retried."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  # the user's __str__ may do anything
        text = "(its text cannot be had)"
    name = type(error).__name__
    return Failure(
        error=clean(f"{name}: {text}" if text else name),
        error_types=tuple(
            each.__name__
            for each in type(error).__mro__
            if issubclass(each, BaseException) and each is not BaseException
        ),
        retryable=not isinstance(error, NonRetryable | Undecryptable),
    )


def _timed_out(seconds: float) -> Failure:
    return Failure(
        error=f"StepTimeout: the handler ran longer than step_timeout ({seconds:g} s)",
        error_types=("StepTimeout", "TimeoutError"),
    )


def _is_for_worker(error: BaseException, deadline: Deadline) -> bool:
    """Return whether an error is not the handler's, but one of the worker, or meant for it."""
    running = deadline.task
    match error:
        case NoThread():
            return True
        case TransactionFailed():
            return not deadline.expired
        case asyncio.CancelledError():
            return running.is_stopped if isinstance(running, StepTask) else running.cancelling() > 0
        case GeneratorExit():
            # The coroutine is closed, which only happens while its task does not run.
            return asyncio.current_task(deadline.loop) is not running
        case KeyboardInterrupt():
            return _is_of_signal(error)
    return False


def _is_of_signal(error: KeyboardInterrupt) -> bool:
    """Return whether Ctrl-C raised it; under Python's own SIGINT handler every one counts as such."""
    on_interrupt: Any = signal.getsignal(signal.SIGINT)
    while isinstance(on_interrupt, partial):
        on_interrupt = on_interrupt.func
    code = getattr(on_interrupt, "__code__", None)
    return on_interrupt is signal.default_int_handler or any(
        frame.f_code is code for frame, _ in walk_tb(error.__traceback__)
    )


def clean(text: str) -> str:
    """Return a text that PostgreSQL can store: bounded, without NUL characters and lone surrogates."""
    if len(text) > MAX_ERROR_LENGTH:
        text = text[: MAX_ERROR_LENGTH - 1] + "…"
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _log_failure(task: Task) -> None:
    _log.exception("handler failed", extra=fields_of(task))
