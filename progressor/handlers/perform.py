"""The seam between the engine and the user's code: any return or raise becomes an Outcome.

Rule: a handler cannot break the worker that runs it, or hold its process longer than it runs. Only
exceptions for the worker pass through: a stop, Ctrl-C, NoThread, after which no handler has begun, and
TransactionFailed, after which it is to run again.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from progressor.errors import CallCycle, InvalidRequest, NonRetryable, Reject, Undecryptable
from progressor.errors.of_handlers import TransactionFailed
from progressor.handlers.codec import RAW, json_object
from progressor.handlers.handler import Handler, InvalidCall, fields_of
from progressor.handlers.limits import an_intent
from progressor.handlers.process import InvalidContext, Process
from progressor.handlers.running.contexts import in_own_context
from progressor.handlers.running.deadlines import Deadline, Deadlines
from progressor.handlers.running.forks import end_child
from progressor.handlers.running.interrupts import is_of_signal
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
                view = Process(process, task, wire=RAW, shape=None)
                intent = await in_own_context(handler.process(task, view))
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
    if seconds is not None:
        _log_failure(task)
        return _timed_out(seconds)
    try:
        refused = _refused(error, task)
    except BaseException as fault:  # noqa: BLE001  # a reason, a detail or a class of the user may do anything
        _log_failure(task)
        return failure(fault)
    if refused is not None:
        return refused
    _log_failure(task)
    return failure(error)


def _refused(error: BaseException, task: Task) -> Rejection | None:
    """Return the rejection that an error stands for; None if it is a failure."""
    match error:
        case Reject():
            details = json_object(error.details, field="Reject") if error.details else {}
            reason: object = error.reason
            return Rejection(clean(reason if isinstance(reason, str) else str(reason)), details)
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
    return None


def _has_expired(task: Task, at: datetime) -> bool:
    """Return whether a request begins too late; one whose worker was lost has begun before."""
    return task.attempts_count == 0 and task.running_time is not None and task.running_time >= at


def _expired(at: datetime) -> Rejection:
    when = at.astimezone(UTC).isoformat()
    return Rejection(f"it was not begun by {when}", {"expires_at": when}, expired=True)


def refusal(error: InvalidRequest) -> Rejection:
    """Return the rejection of a request that is wrong itself."""
    return Rejection(clean(str(error)), {"field": error.field}, invalid=True)


def failure(error: BaseException) -> Failure:
    """Return the failure of a step that raised; one that met a value it cannot decrypt is not retried.

    Whatever the error raises as it is described: there is a failure of it.
    """
    kind = type(error)
    try:
        described, error_types = _described(error), _names(kind)
    except BaseException:  # noqa: BLE001  # a metaclass of the user may do anything
        described, error_types = "an error that cannot be described", ("Exception",)
    # Not by isinstance, which asks the error for its class.
    return Failure(described, error_types, retryable=not issubclass(kind, NonRetryable | Undecryptable))


def _described(error: BaseException) -> str:
    name = clean(type(error).__name__)
    try:
        text = clean(str(error))
    except BaseException:  # noqa: BLE001  # the user's __str__ may do anything
        text = "(its text cannot be had)"
    return clean(f"{name}: {text}" if text else name)


def _names(kind: type[BaseException]) -> tuple[str, ...]:
    bases = (each for each in kind.__mro__ if issubclass(each, BaseException))
    return tuple(clean(each.__name__) for each in bases if each is not BaseException)


def _timed_out(seconds: float) -> Failure:
    return Failure(
        error=f"StepTimeout: the handler ran longer than step_timeout ({seconds:g} s)",
        error_types=("StepTimeout", "TimeoutError"),
    )


def _is_for_worker(error: BaseException, deadline: Deadline) -> bool:
    """Return whether an error is not the handler's, but one of the worker, or meant for it."""
    # Not by isinstance, nor by match, which ask the error for its class: that may be the user's code.
    kind, running = type(error), deadline.task
    if issubclass(kind, NoThread):
        return True
    if issubclass(kind, TransactionFailed):
        return not deadline.expired
    if issubclass(kind, asyncio.CancelledError):
        return running.is_stopped if isinstance(running, StepTask) else running.cancelling() > 0
    if issubclass(kind, GeneratorExit):
        # The coroutine is closed, which only happens while its task does not run.
        return asyncio.current_task(deadline.loop) is not running
    return issubclass(kind, KeyboardInterrupt | SystemExit) and is_of_signal()


def clean(text: str) -> str:
    """Return a text that PostgreSQL can store: bounded, without NUL characters and lone surrogates."""
    # A plain one: the methods of a subclass may be the user's.
    text = str.__str__(text)
    if len(text) > MAX_ERROR_LENGTH:
        text = text[: MAX_ERROR_LENGTH - 1] + "…"
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _log_failure(task: Task) -> None:
    try:
        _log.exception("handler failed", extra=fields_of(task))
    except BaseException:  # noqa: BLE001  # the traceback asks the error for its names and notes
        _log.error("handler failed", extra=fields_of(task))
