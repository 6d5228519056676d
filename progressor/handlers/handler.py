"""Handlers: the user's code as the engine calls it, in bytes. The typed layer is sugar on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypedDict

from progressor.codecs.codec import Codec, PlacedCodec
from progressor.config import NamespaceOptions, OnZombie, Rate, Retention, RetryPolicy
from progressor.errors import InvalidRequest
from progressor.handlers.codec import Wire, breaks_process
from progressor.handlers.process import Process
from progressor.inputs import HistoryRange, check_text
from progressor.model import Intent, Task

Group = Callable[[Any], str]
"""A function of the arguments of a start, which names the group of the process."""


class Handler(Protocol):
    """The user's code for a namespace, in bytes; Namespace builds one from decorated functions."""

    async def process(self, task: Task, process: Process[Any], /) -> Intent:
        """Answer one task; raise Reject to refuse it, NonRetryable to break the process without retries."""
        ...


class Keywords(TypedDict, total=False):
    """The keywords of a namespace beside its state."""

    handler: Handler | None
    retry_policy: RetryPolicy
    step_timeout: timedelta
    concurrency: int
    on_zombie: OnZombie
    zombie_attempts: int
    history: HistoryRange | None
    pause: timedelta | None
    group: Group | None
    group_limit: int | None
    rate: Rate | None
    group_rate: Rate | None
    retention: Retention | None
    feed: bool
    codec: Codec | PlacedCodec | None


def fields_of(task: Task) -> dict[str, object]:
    """Return the fields of a task for a line of the log."""
    return {
        "namespace": task.namespace,
        "process_id": task.process_id,
        "task_id": task.task_id,
        "task_type": task.task_type.value,
    }


def handler_of(task: Task) -> str:
    """Return the name of a task's handler: that of the call, `timeout dunning`, or the type of the task."""
    return task.function if task.name is None or task.task_type.is_timer else task.name


def check_handler(handler: Any, *, state: Any, codec: object) -> Handler | None:
    """Return the raw handler of a namespace, if it has one; InvalidRequest unless it can serve alone."""
    if handler is None:
        return None
    if isinstance(handler, type) or not callable(getattr(handler, "process", None)):
        raise InvalidRequest(
            "handler must be an object with `async def process(task, process)`", field="handler"
        )
    if state is not None:
        raise InvalidRequest("state= needs decorated functions, not handler=", field="state")
    if codec is not None:
        raise InvalidRequest("codec= needs decorated functions, not handler=", field="codec")
    checked_handler: Handler = handler
    return checked_handler


class InvalidCall(InvalidRequest):
    """The request itself is wrong: an unknown call, or bad arguments. Only the typed layer raises it.

    A type of its own, because an InvalidRequest of the user's own code is a failure of that code.
    """


class MissingHandler(Exception):
    """A handler set a timer, or one is due, in a namespace without a timeout handler."""


def check_group(group: Group | None, options: NamespaceOptions, *, is_raw: bool) -> Group | None:
    """Return the function of a namespace that names groups; InvalidRequest if it cannot be one."""
    if group is None:
        for limit in ("group_limit", "group_rate"):
            if getattr(options, limit) is not None:
                raise InvalidRequest(f"{limit} needs a group: a function of the arguments", field=limit)
        return None
    if is_raw:
        raise InvalidRequest("a raw handler has no typed arguments, so it takes no group", field="group")
    if not callable(group) or inspect.iscoroutinefunction(group):
        raise InvalidRequest("group must be a function, and not async", field="group")
    return group


def group_key(group: Group, args: tuple[Any, ...]) -> str:
    """Return the group for the arguments of a start; InvalidCall if the function names none."""
    try:
        key = group(*args) if args else group(None)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        raise InvalidCall(
            f"the group of its namespace cannot be named ({type(error).__name__}: {error})", field="args"
        ) from None
    try:
        return check_text("the group", key)
    except InvalidRequest as error:
        raise InvalidCall(str(error), field="args") from None


def plain_args(task: Task, wire: Wire) -> bytes | None:
    """Return the arguments of a request as JSON, None without any and for timers, which keep a rule there.

    InvalidCall if the codec raises, but Undecryptable as it is.
    """
    if task.args is None or task.task_type.is_timer:
        return None
    try:
        return wire.unseal(task.args, "args", task)
    except Exception as error:
        if breaks_process(error):
            raise
        raise InvalidCall(
            f"args cannot be decoded ({type(error).__name__}): the client must use the namespace's codec",
            field="args",
        ) from error
