"""Answers of the API become the values and errors that the Client gives for the same.

Rule: a problem's type names the error, and its members are that error's attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter
from pydantic_core import to_json

from progressor import errors
from progressor.calendars import rule_of
from progressor.client.results import Health, Read, TraceEntry
from progressor.errors import InvalidRequest, ProgressorError, StorageUnavailable
from progressor.handlers.codec import JSON, RAW, decode
from progressor.handlers.process import Process
from progressor.handlers.state.shape import ANY
from progressor.http.client.exchange import Answer
from progressor.http.wire import headers, problems
from progressor.http.wire.members import holds_bytes, value_in
from progressor.model import Event, Snapshot, Timer

_SNAPSHOT, _EVENT, _ENTRY = TypeAdapter(Snapshot), TypeAdapter(Event), TypeAdapter(TraceEntry)
_HEALTH = TypeAdapter(Health)
_CLASSES = {kind.type: error for error, kind in problems.TABLE.items()}
_CLASSES[problems.INVALID_ARGS.type] = InvalidRequest


def is_accepted(answer: Answer) -> bool:
    """Return whether this answers a request that was accepted, be it with a problem."""
    return headers.TASK in answer.headers


def task_of(answer: Answer) -> tuple[int, str | None]:
    """Return the task id of a request that was accepted, and its fingerprint."""
    path, _, query = answer.headers[headers.TASK].partition("?")
    return int(path.rpartition("/")[2]), dict(parse_qsl(query)).get("fingerprint")


def value_of(answer: Answer, read: Read | None = None) -> Any:
    """Return a handler's answer, as `read` reads its JSON, or raise its error."""
    if not answer.is_success:
        raise error_of(answer)
    if headers.media_type_of_text(answer.headers.get("Content-Type")) == headers.BYTES:
        return answer.content
    return decode(answer.content, field="answer") if read is None else read(answer.content)


def error_of(answer: Answer) -> ProgressorError:
    """Return the error that a problem stands for."""
    try:
        document = answer.json()
        kind, detail = document["type"], document["detail"]
    except (ValueError, KeyError, TypeError):
        # Not a problem of the API: a proxy in front of it answers, or another server at this address.
        return _without_class(
            answer.status_code, f"the API answered {answer.status_code}, and does not say why"
        )
    error = _CLASSES.get(kind)
    if error is None:
        return _without_class(answer.status_code, detail)
    made = error.__new__(error)
    made.args = (detail,)
    facts = {name: value for name, value in document.items() if name not in _OF_PROBLEMS}
    if issubclass(error, InvalidRequest):
        facts.setdefault("field", None)
    for field, of in (("processes", errors.CallCycle), ("similar", errors.NamespaceNotFound)):
        if issubclass(error, of):
            facts[field] = tuple(facts.get(field, ()))
    if "process_id" in facts and issubclass(error, errors.AboutProcess):
        facts["detail"] = facts.pop("cause", None)
    vars(made).update(facts)
    return made


# The members of a problem that are no attributes of its error.
_OF_PROBLEMS = frozenset({"type", "title", "status", "detail", "errors"})


class NotAllowed(InvalidRequest):
    """Error 403: the token lacks a scope or a namespace, which the text names."""


def _without_class(status: int, detail: str) -> ProgressorError:
    if status == HTTPStatus.FORBIDDEN:
        return NotAllowed(detail)
    may_pass = status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
    if may_pass or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return StorageUnavailable(detail)
    return InvalidRequest(detail)


def health_of(answer: Answer) -> Health:
    """Return the health of the API and its database; not ok if the answer is none of the API's."""
    try:
        return _HEALTH.validate_json(answer.content)
    except ValueError:
        if not answer.is_success:
            return Health(False, str(error_of(answer)), 0, ())
        return Health(False, f"the API answered {answer.status_code}, and not how it is", 0, ())


def process_of(facts: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Process[Any]:
    """Return a process as `Client.get` does without the namespace's type."""
    state = value_in(facts, "state")
    is_readable = not isinstance(state, bytes)
    # Every value of a raw namespace is bytes; in any other only a value that cannot be decoded is.
    raw = all(holds_bytes(each, "payload") for each in history) and not (is_readable and state is not None)
    known = {name: facts[name] for name in Snapshot._fields if name in facts}
    # An API of an older release has processes with one timer.
    timers = facts.get("timers", [each for each in (facts["timer"],) if each is not None])
    known["timers"] = tuple(map(_timer_of, timers))
    snapshot = _SNAPSHOT.validate_python(known | {"process_no": 0, "aux_state": None, "history": ()})
    snapshot = snapshot._replace(
        aux_state=None if state is None else to_json(state) if is_readable else state,
        history=tuple(event_of(each, stored=True) for each in history),
    )
    return Process(snapshot, wire=RAW if raw else JSON, shape=ANY if is_readable else None)


def _timer_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: facts[name] for name in Timer._fields if name in facts}
    try:
        return known if known.get("every") is None else known | {"every": rule_of(known["every"])}
    except InvalidRequest:
        # An API of a newer release has rules that this one does not know.
        return known | {"every": None}


def event_of(facts: Mapping[str, Any], *, stored: bool = False) -> Event:
    """Return an event; `stored`: with its payload in bytes, as a snapshot holds it."""
    payload = value_in(facts, "payload")
    if stored and not isinstance(payload, bytes):
        payload = to_json(payload)
    return replace(_EVENT.validate_python(facts), payload=payload)


def entry_of(facts: Mapping[str, Any]) -> TraceEntry:
    """Return a task of a trace."""
    values = {name: value_in(facts, name) for name in ("args", "response", "context")}
    entry = _ENTRY.validate_python({**facts, **values, "events": ()})
    return replace(entry, events=tuple(map(event_of, facts["events"])))
