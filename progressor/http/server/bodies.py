"""Bodies of requests and answers: arguments as they come in; processes, tasks and events as they are shown.

Rule: arguments are the body itself, and an answer is the handler's answer itself. JSON is passed on as it
was written, but for white space: a number keeps all its digits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from progressor.client.results import Published, TraceEntry
from progressor.errors import InvalidRequest
from progressor.handlers.members import IN_BASE64, members_for, value_in
from progressor.handlers.process import Process
from progressor.http.server.problems import Refusal
from progressor.http.server.request_headers import accepts
from progressor.http.wire import problems
from progressor.http.wire.headers import BYTES, JSON
from progressor.model import (
    LONGEST_SECONDS,
    MAX_ID_LENGTH,
    Event,
    ProcessStatus,
    SetTimer,
    TaskStatus,
    TaskType,
    TimerStatus,
)

_PART_BYTES = 64 << 10
# Seconds that the peer may take to accept the next part of an answer.
_PATIENCE_SECONDS = 30.0

_OF_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")


def _written(value: Any) -> Any:
    """Return a time as it is written; raise ValueError for a number, else taken for seconds since 1970."""
    if isinstance(value, str) and _OF_TIME.match(value):
        return value
    raise ValueError("must be a time, as in 2026-02-28T12:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_written)]
"""A time with its offset (RFC 3339)."""
Duration = Annotated[
    timedelta,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": -LONGEST_SECONDS, "maximum": LONGEST_SECONDS},
                {"type": "string", "format": "duration"},
            ]
        }
    ),
]
"""Seconds, or ISO 8601."""

Bytes = Annotated[str | None, Field(default=None, json_schema_extra={"contentEncoding": "base64"})]
"""Bytes in base64, beside a member that is null then."""


class TimerBody(BaseModel):
    """A process's timer."""

    task_type: TaskType
    due: datetime
    status: TimerStatus


class EventBody(BaseModel):
    """One entry of a process's history."""

    event_id: int
    name: str | None
    timestamp: datetime | None
    task_id: int | None
    metadata: dict[str, Any]
    payload: Any
    payload_base64: Bytes


class ProcessBody(BaseModel):
    """A process. Without the scope `errors:read` its `detail` is null."""

    namespace: str
    process_id: str
    status: ProcessStatus
    previous_status: ProcessStatus | None
    status_changed_at: datetime
    created_at: datetime
    detail: str | None
    corrupted_by: int | None
    timer: TimerBody | None
    last_event_id: int
    metadata: dict[str, Any]
    state: Any = Field(default=None, description="Present only if it is asked for.")
    state_base64: Bytes
    history: list[EventBody] | None = Field(default=None, description="Present only if it is asked for.")


class TaskBody(BaseModel):
    """One task of a trace. Without the scope `errors:read` its `error` is null."""

    task_id: int
    task_type: TaskType
    status: TaskStatus
    name: str | None
    args: Any
    args_base64: Bytes
    response: Any
    response_base64: Bytes
    error: str | None
    idempotency_key: str | None
    context: Any
    context_base64: Bytes
    scheduled_time: datetime
    running_time: datetime | None
    finished_time: datetime | None
    attempts_count: int
    last_retry_interval: float | None = Field(description="Seconds.")
    worker_id: str | None
    events: list[EventBody]


class EventsBody(BaseModel):
    """A range of a history; `after` asks for the events behind it, null at the end."""

    events: list[EventBody]
    after: int | None


class TraceBody(BaseModel):
    """Tasks in their order; `after` asks for the tasks behind them, null at the end.

    A page may have fewer tasks than were asked for, because they are large. If the `last` ones were asked
    for, `before` asks for those of them that are missing, null if all are there.
    """

    tasks: list[TaskBody]
    after: int | None
    before: int | None


class PageBody(BaseModel):
    """A page of processes; `cursor` asks for the next one, null at the end."""

    processes: list[ProcessBody]
    cursor: str | None


class NamespaceBody(BaseModel):
    """A namespace as the workers that serve it have published it."""

    name: str
    paused: bool
    options: dict[str, Any]
    schemas: dict[str, Any]


class AcceptedBody(BaseModel):
    """A request that was accepted, and has no answer yet: ask its task for it."""

    namespace: str
    process_id: str
    task_id: int
    fingerprint: str | None = Field(description="Tells this task from another one with its number.")
    idempotency_key: str | None
    paused: bool = Field(description="True if its namespace is paused: the task waits for an operator.")
    served: bool | None = Field(
        description="True if a live worker serves its namespace; null if not looked up."
    )
    requests_before: int | None = Field(
        description="Requests that wait before it, counted up to 1,001; null if not looked up."
    )


class ErrorBody(BaseModel):
    """A JSON pointer to a value that breaks a rule, and the rule."""

    pointer: str
    rule: str


class ProblemBody(BaseModel, extra="allow"):
    """A problem document (RFC 9457); further members are those of its type."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ErrorBody] = []


class ImportedEvent(BaseModel, extra="forbid"):
    """An event of a history that is imported."""

    payload: Any = None
    payload_base64: Bytes
    name: str | None = Field(default=None, min_length=1, max_length=MAX_ID_LENGTH)
    timestamp: Moment | None = None
    metadata: dict[str, Any] = {}


# Generators of clients ignore if, then and else; from each branch of oneOf they would make a type.
_ONE_OF_BOTH = {
    "if": {"required": ["at"], "properties": {"at": {"type": "string"}}},
    "then": {"properties": {"after": {"type": "null"}}},
    "else": {"required": ["after"], "properties": {"after": {"not": {"type": "null"}}}},
}


class NewTimer(BaseModel, extra="forbid", json_schema_extra=_ONE_OF_BOTH):
    """A timer to be set: `at` a time, or `after` so many seconds; exactly one of both."""

    at: Moment | None = None
    after: Duration | None = None
    remove: bool = False


class ImportBody(BaseModel, extra="forbid"):
    """A process to import."""

    state: Any = None
    state_base64: Bytes
    events: list[ImportedEvent] = []
    metadata: dict[str, Any] | None = None
    status: Literal["running", "error"] = "running"
    timer: NewTimer | None = None


def timer_of(given: NewTimer) -> SetTimer:
    """Return the timer that a body states; raise InvalidRequest if it breaks a rule."""
    try:
        return SetTimer(at=given.at, after=given.after, remove=given.remove)
    except InvalidRequest as error:
        raise InvalidRequest(f"timer: {error}", field="args.timer") from None


def given_value(body: BaseModel, name: str, *, raw: bool, field: str) -> Any:
    """Return a value that a body states: bytes for a raw namespace, JSON for every other one.

    Raise InvalidRequest if it is given in the other form, or is not base64.
    """
    members = body.model_dump(include={name, name + IN_BASE64})
    other = name if raw else name + IN_BASE64
    if members[other] is not None:
        kind = "bytes, in base64" if raw else "JSON"
        raise InvalidRequest(f"{field}{other} must not be given: {name} is {kind}", field=field + other)
    try:
        return value_in(members, name)
    except ValueError:
        where = f"{field}{name}{IN_BASE64}"
        raise InvalidRequest(f"{where} is not base64", field=where) from None


def require_acceptable(request: Request, media_type: str) -> None:
    """Raise Refusal if the caller does not accept an answer of this type: before anything is done."""
    if not accepts(request.headers, media_type):
        raise Refusal(problems.NOT_ACCEPTABLE, f"the answer is {media_type}")


def answer_type(published: Published) -> str:
    """Return the media type of a namespace's answers."""
    return BYTES if published.is_raw else JSON


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of a handler: bytes as they are, all else as JSON."""
    if isinstance(value, bytes):
        return Response(value, status, headers, BYTES)
    return shown(value, status, headers)


def shown(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(to_json(value, fallback=str), status, headers, JSON)


class Listed(Response):
    """A JSON object with a list in it, whose entries are made one by one while they are sent."""

    media_type = JSON

    def __init__(
        self, name: str, entries: Iterator[Any], members: dict[str, Any], said: dict[str, str]
    ) -> None:
        super().__init__(headers=said)
        del self.headers["Content-Length"]
        self._name = name
        self._entries = entries
        self._members = members

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        part = bytearray(b"{" + to_json(self._name) + b":[")
        for place, entry in enumerate(self._entries):
            part += b"," if place else b""
            part += to_json(entry, fallback=str)
            if len(part) > _PART_BYTES:
                await _taken(send, bytes(part))
                part.clear()
        # The other members of the object; there is always one.
        part += b"]," + to_json(self._members)[1:]
        await send({"type": "http.response.body", "body": bytes(part)})


async def _taken(send: Send, part: bytes) -> None:
    """Send a part of an answer; raise TimeoutError if the peer does not take it in time."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    # Encoding a part takes a while: other requests are answered between two of them.
    await asyncio.sleep(0)


def shown_process(process: Process[Any], *, state: bool, history: bool, failures: bool) -> dict[str, Any]:
    """Return a process as ProcessBody has it."""
    timer = process.timer
    facts: dict[str, Any] = {
        "namespace": process.namespace,
        "process_id": process.process_id,
        "status": process.status,
        "previous_status": process.previous_status,
        "status_changed_at": process.status_changed_at,
        "created_at": process.created_at,
        "detail": process.detail if failures else None,
        "corrupted_by": process.corrupted_by,
        "timer": None if timer is None else timer._asdict(),
        "last_event_id": process.last_event_id,
        "metadata": process.metadata,
    }
    if state:
        facts |= members_for("state", _state(process))
    if history:
        facts["history"] = [shown_event(event) for event in process.history]
    return facts


def _state(process: Process[Any]) -> Any:
    """Return the state, or its bytes if it is not of its declared type."""
    try:
        return process.state
    except ValueError:
        return process.aux_state


def shown_event(event: Event) -> dict[str, Any]:
    """Return an event as EventBody has it."""
    return {
        "event_id": event.event_id,
        "name": event.name,
        "timestamp": event.timestamp,
        "task_id": event.task_id,
        "metadata": event.metadata,
        **members_for("payload", event.payload),
    }


def shown_task(entry: TraceEntry, *, failures: bool) -> dict[str, Any]:
    """Return a task as TaskBody has it."""
    interval = entry.last_retry_interval
    return {
        "task_id": entry.task_id,
        "task_type": entry.task_type,
        "status": entry.status,
        "name": entry.name,
        **members_for("args", entry.args),
        **members_for("response", entry.response),
        "error": entry.error if failures else None,
        "idempotency_key": entry.idempotency_key,
        **members_for("context", entry.context),
        "scheduled_time": entry.scheduled_time,
        "running_time": entry.running_time,
        "finished_time": entry.finished_time,
        "attempts_count": entry.attempts_count,
        "last_retry_interval": None if interval is None else interval.total_seconds(),
        "worker_id": entry.worker_id,
        "events": [shown_event(event) for event in entry.events],
    }
