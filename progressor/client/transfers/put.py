"""Imports of `put`: a process in the bytes of its namespace, checked before anything is written."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from progressor.codecs.codec import Owner
from progressor.config import ConnectionOptions
from progressor.errors import InvalidRequest
from progressor.handlers.codec import Wire, encode_json, json_object
from progressor.inputs import MAX_TIMERS, can_be_stored, check_text, in_utc
from progressor.model import Event, Metadata
from progressor.storage import Import
from progressor.timers import SetTimer, TimerChange, UnsetTimer


def import_of(
    namespace: str,
    process_id: str,
    *,
    options: ConnectionOptions,
    wire: Wire,
    state: Any,
    events: Sequence[Any],
    action: TimerChange | Sequence[TimerChange] | None,
    metadata: Metadata | None,
    status: Literal["running", "error"],
) -> Import:
    """Return the item for Storage.put; raise InvalidRequest, which names what is wrong."""
    check_import(events, action, status)
    owner = Owner(namespace, process_id)
    return Import(
        namespace=namespace,
        process_id=process_id,
        idempotency_key=secrets.token_hex(12),
        status=status,
        detail="imported as broken" if status == "error" else None,
        aux_state=options.check_value("state", wire.encode(state, "state", owner)),
        metadata=options.check_metadata(
            "metadata", None if metadata is None else json_object(metadata, field="metadata")
        ),
        events=options.check_events(
            "events", [_event(event, wire, owner, f"events[{place}]") for place, event in enumerate(events)]
        ),
        timers=tuple(_armed(timer, namespace, process_id) for timer in timers_of(action)),
    )


def check_import(events: object, action: object, status: object) -> None:
    """Raise InvalidRequest if these are not of their types."""
    if status not in ("running", "error"):
        raise InvalidRequest("status must be running or error", field="status")
    changes = _changes(action)
    if not all(isinstance(each, SetTimer | UnsetTimer) for each in changes):
        raise InvalidRequest(
            "action must be SetTimer, UnsetTimer, a list of these, or None", field="action"
        )
    if len({each.name for each in changes}) < len(changes) or len(changes) > MAX_TIMERS:
        raise InvalidRequest(f"action must name each timer once, at most {MAX_TIMERS}", field="action")
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
        raise InvalidRequest("events must be a list of dicts, models or Events", field="events")


def _changes(action: Any) -> Sequence[Any]:
    return action if isinstance(action, list | tuple) else () if action is None else (action,)


def timers_of(action: TimerChange | Sequence[TimerChange] | None) -> tuple[SetTimer, ...]:
    """Return the timers that an import sets."""
    return tuple(each for each in _changes(action) if isinstance(each, SetTimer))


def _armed(timer: SetTimer, namespace: str, process_id: str) -> SetTimer:
    """Return a timer as it is stored; InvalidRequest if its first time depends on PostgreSQL's clock."""
    if timer.is_armed:
        return timer
    if timer.at is None:
        raise InvalidRequest(
            "action: an imported timer with every=, jitter= or between= needs at=: when it is due first, "
            "or from when its rule counts",
            field="action",
        )
    return timer.armed(timer.at, namespace, process_id, timer.name)


def event_parts(event: Any, field: str) -> tuple[Any, Metadata, datetime | None]:
    """Return payload, metadata and time of an event; raise InvalidRequest if it is none.

    An event is a dict (`{"name": …, "payload": …}`, or a payload with a name in it), a model, a dataclass,
    or an Event.
    """
    timestamp: Any = None
    metadata: Metadata = {}
    payload: Any = event
    match event:
        case Event():
            timestamp, metadata, payload = event.timestamp, dict(event.metadata), event.payload
        case Mapping():
            if "payload" in event:
                timestamp, payload = event.get("timestamp"), event["payload"]
                metadata = dict(event.get("metadata") or {})
            else:
                payload = {key: value for key, value in event.items() if key != "name"}
            if "name" in event:
                metadata["name"] = check_text(f"{field}.name", event["name"])
        case _ if not isinstance(event, type) and (isinstance(event, BaseModel) or is_dataclass(event)):
            metadata["name"] = type(event).__name__
        case _:
            raise InvalidRequest(
                f"{field} must be a dict, a model or an Event, not {type(event).__name__}", field=field
            )
    return payload, json_object(metadata, field=field), _moment(timestamp, field=field)


def _event(event: Any, wire: Wire, of: Owner, field: str) -> Event:
    payload, metadata, timestamp = event_parts(event, field)
    data = payload if isinstance(payload, bytes) else encode_json(payload, field=field)
    return Event(wire.seal(data, "event", of), metadata, timestamp=timestamp)


def _moment(timestamp: Any, *, field: str) -> datetime | None:
    """Return the time of an event in UTC; raise InvalidRequest if it could not be read again."""
    if timestamp is None:
        return None
    moment = in_utc(timestamp)
    if moment is None:
        raise InvalidRequest(f"{field}.timestamp must be an aware datetime (with tzinfo)", field=field)
    if not can_be_stored(moment):
        raise InvalidRequest(f"{field}.timestamp must lie in the years 2 to 9998", field=field)
    return moment
