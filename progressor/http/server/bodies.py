"""Bodies: the models of those that requests have, and answers as responses.

Rule: an answer is the handler's answer itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import time, timedelta
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from progressor.calendars import rule_of
from progressor.client.results import Published
from progressor.errors import InvalidRequest
from progressor.http.wire.headers import BYTES, JSON
from progressor.http.wire.members import IN_BASE64, value_in
from progressor.http.wire.models import Bytes
from progressor.inputs import LONGEST_SECONDS, MAX_ID_LENGTH
from progressor.timers import SetTimer
from progressor.timers.recurrence import CatchUp, Drift

# Bytes that are sent at once, and seconds that the peer may take to accept them.
PIECE, _PATIENCE = 64 << 10, 30.0

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
    "else": {
        "if": {"required": ["every"], "properties": {"every": {"type": "object"}}},
        "else": {"required": ["after"], "properties": {"after": {"not": {"type": "null"}}}},
    },
}


class NewTimer(BaseModel, extra="forbid", json_schema_extra=_ONE_OF_BOTH):
    """A timer to be set: `at` a time, or `after` so many seconds; with `every` it recurs.

    Without `every`, exactly one of `at` and `after`; with it, either is its first time.
    """

    at: Moment | None = None
    after: Duration | None = None
    remove: bool = False
    every: dict[str, Any] | None = Field(
        default=None,
        description=(
            'A period, `{"seconds": 3600}`, or a rule: `{"cron": "0 9 1 * *", "tz": "Europe/Berlin"}`, '
            '`{"rrule": "FREQ=MONTHLY;BYMONTHDAY=-1", "start": "…", "tz": "…"}`, '
            '`{"day": 31, "at": "09:00", "tz": "Europe/Berlin"}`.'
        ),
    )
    drift: Drift = "fixed"
    catch_up: CatchUp = "one"
    within: Duration | None = None
    jitter: Duration | None = None
    between: tuple[time, time] | tuple[time, time, str] | None = Field(
        default=None, description="The opening and the closing of a window of the day, and its time zone."
    )

    def named(self, name: str = "") -> SetTimer:
        """Return the timer that it states; raise InvalidRequest if it breaks a rule."""
        try:
            every = None if self.every is None else rule_of(self.every)
            return SetTimer(name=name, **dict(self) | {"every": every})
        except InvalidRequest as error:
            field = "timers" if name else "timer"
            raise InvalidRequest(f"{field}: {error}", field=f"args.{field}") from None


class ImportBody(BaseModel, extra="forbid"):
    """A process to import."""

    state: Any = None
    state_base64: Bytes
    events: list[ImportedEvent] = []
    metadata: dict[str, Any] | None = None
    status: Literal["running", "error"] = "running"
    timer: NewTimer | None = None
    timers: dict[str, NewTimer] = Field(default={}, description="The timers with names, by these.")

    @property
    def all_timers(self) -> list[SetTimer]:
        """The timers that it states; InvalidRequest if one breaks a rule."""
        unnamed = [] if self.timer is None else [self.timer.named()]
        return [*unnamed, *(timer.named(name) for name, timer in self.timers.items())]


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


def answer_type(published: Published) -> str:
    """Return the media type of a namespace's answers."""
    return BYTES if published.is_raw else JSON


def answer(value: Any, status: int = 200) -> Response:
    """Return an answer of a handler: bytes as they are, all else as JSON."""
    return Whole(value, status, media_type=BYTES) if isinstance(value, bytes) else shown(value, status)


def shown(value: Any, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Whole(to_json(value, fallback=str), status, media_type=JSON)


class NotTaken(Exception):
    """The peer does not take what it is sent: nobody receives the rest, so the answer ends."""


async def sent(send: Send, piece: bytes, *, more: bool = True) -> None:
    """Send a piece of an answer; raise NotTaken if the peer does not take it in time."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    except TimeoutError:
        raise NotTaken from None


class Whole(Response):
    """An answer whose body is known. A large one leaves as its peer takes it, and is memory until then."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytes(self.body)
        if len(body) <= PIECE:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with suppress(NotTaken):
            for begin in range(0, len(body), PIECE):
                await sent(send, body[begin : begin + PIECE], more=begin + PIECE < len(body))


class Listed(Response):
    """A JSON object with a list in it, whose entries are made one by one while they are sent."""

    media_type = JSON

    def __init__(self, name: str, entries: Iterator[Any], members: dict[str, Any]) -> None:
        super().__init__()
        del self.headers["Content-Length"]
        self._name = name
        self._entries = entries
        self._members = members

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        part = bytearray(b"{" + to_json(self._name) + b":[")
        with suppress(NotTaken):
            for place, entry in enumerate(self._entries):
                part += b"," if place else b""
                part += to_json(entry, fallback=str)
                if len(part) > PIECE:
                    await sent(send, bytes(part))
                    part.clear()
                    # Encoding a part takes a while: other requests are answered between two of them.
                    await asyncio.sleep(0)
            # The other members of the object; there is always one.
            part += b"]," + to_json(self._members)[1:]
            await sent(send, bytes(part), more=False)
