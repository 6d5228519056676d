"""The seam between the engine and the user's code: any return or raise becomes an Outcome.

Rule: nothing that a handler does can break the worker that runs it. Only a cancellation from outside
passes through, Ctrl-C, and NoThread: the handler did not begin.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from progressor.errors import CallCycle, InvalidRequest, NonRetryable, Reject
from progressor.handlers.codec import RAW, json_object
from progressor.handlers.deadlines import Deadline, Deadlines
from progressor.handlers.handler import Handler, InvalidCall, fields_of
from progressor.handlers.limits import an_intent
from progressor.handlers.process import InvalidContext, Process
from progressor.handlers.threads import NoThread
from progressor.model import Failure, Intent, Outcome, Rejection, Remove, Snapshot, Success, Task, TaskType

MAX_ERROR_LENGTH = 2_000

_log = logging.getLogger("progressor.handler")

_REMOVED: Final = Success(Intent(action=Remove()))


async def perform(
    handler: Handler,
    process: Snapshot,
    task: Task,
    deadlines: Deadlines,
) -> Outcome:
    """Run the handler for as long as `deadlines` allow, and say how it ended; NoThread: it did not."""
    if task.task_type is TaskType.REMOVE:
        return _REMOVED
    deadline = Deadline(deadlines, task)
    try:
        with deadline:
            intent = await handler.process(task, Process(process, task, wire=RAW, shape=None))
        # Running out of time is an outcome, not an error.
        return _timed_out(deadlines.seconds) if deadline.expired else Success(an_intent(intent))
    except asyncio.CancelledError as error:
        if _is_cancelled_from_outside():
            raise
        _log_failure(task)
        return _failure(error)
    except (NoThread, KeyboardInterrupt, GeneratorExit):
        # The handler did not begin, or those who run this worker want it to end.
        raise
    except BaseException as error:  # noqa: BLE001  # a panic of a library's Rust too is the outcome
        return _outcome(error, task, seconds=deadlines.seconds if deadline.expired else None)


def _outcome(error: BaseException, task: Task, *, seconds: float | None) -> Outcome:
    """`seconds` is set if the handler had run out of time."""
    if seconds is None:
        match error:
            case Reject():
                return _rejection(error, task)
            case InvalidCall() | InvalidContext():
                if error.__cause__ is not None:
                    # A codec raised: the request is not of this codec, or the worker lacks its keys.
                    cause = type(error.__cause__).__name__
                    _log.warning("request cannot be decoded", extra=fields_of(task) | {"cause": cause})
                return _invalid(error)
            case CallCycle():
                # Two steps would wait for each other. Neither is broken, but the developer should know.
                _log_failure(task)
                return _invalid(error)
    _log_failure(task)
    return _failure(error) if seconds is None else _timed_out(seconds)


def _invalid(error: InvalidRequest) -> Rejection:
    return Rejection(clean(str(error)), {"field": error.field}, invalid=True)


def _rejection(error: Reject, task: Task) -> Outcome:
    try:
        details = json_object(error.details, field="Reject") if error.details else {}
        return Rejection(clean(error.reason), details)
    except (InvalidRequest, AttributeError) as fault:
        _log_failure(task)
        return _failure(fault)


def _failure(error: BaseException) -> Failure:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # the user's __str__ may do anything
        text = "(its text cannot be had)"
    name = type(error).__name__
    return Failure(
        error=clean(f"{name}: {text}" if text else name),
        error_types=tuple(
            each.__name__
            for each in type(error).__mro__
            if issubclass(each, BaseException) and each is not BaseException
        ),
        retryable=not isinstance(error, NonRetryable),
    )


def _timed_out(seconds: float) -> Failure:
    return Failure(
        error=f"StepTimeout: the handler ran longer than step_timeout ({seconds:g} s)",
        error_types=("StepTimeout", "TimeoutError"),
    )


def _is_cancelled_from_outside() -> bool:
    """False if the handler merely awaited something of its own that was cancelled."""
    running = asyncio.current_task()
    return running is None or running.cancelling() > 0


def clean(text: str) -> str:
    """A text that PostgreSQL can store: bounded, without NUL characters and lone surrogates."""
    if len(text) > MAX_ERROR_LENGTH:
        text = text[: MAX_ERROR_LENGTH - 1] + "…"
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _log_failure(task: Task) -> None:
    _log.exception("handler failed", extra=fields_of(task))
