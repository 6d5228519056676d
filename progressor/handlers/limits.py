"""Limits of a handler's result: it must have the right types, and must not be too large.

Rule: a result that cannot be saved fails its own step, and never the batch in which it would travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

from progressor.config import EngineOptions
from progressor.errors import InvalidRequest
from progressor.handlers.codec import json_object
from progressor.messages.message import MAX_MESSAGES, Message
from progressor.model import Event, Failure, Intent, Outcome, Rejection, Remove, Success
from progressor.timers import SetTimer, UnsetTimer


def bounded(outcome: Outcome, options: EngineOptions) -> Outcome:
    """Return the outcome, or a Failure if the result is larger than the options allow."""
    try:
        match outcome:
            case Success(intent=intent):
                _check_intent(intent, options)
            case Rejection(details=details):
                options.check_metadata("Reject", dict(details))
            case Failure():
                pass
            case _:
                assert_never(outcome)
    except InvalidRequest as error:
        # Another try would give as large a result.
        return Failure(f"ResultTooLarge: {error}", error_types=("ResultTooLarge",), retryable=False)
    return outcome


def _check_intent(intent: Intent, options: EngineOptions) -> None:
    options.check_value("the state", intent.aux_state)
    options.check_value("the answer", intent.response)
    options.check_metadata("metadata", intent.metadata)
    if len(intent.events) > options.max_step_events:
        raise InvalidRequest(
            f"a step must emit at most {options.max_step_events:,} events (max_step_events), "
            f"not {len(intent.events):,}",
            field="events",
        )
    options.check_events("events", intent.events)
    if intent.messages:
        _check_messages(intent.messages, options)


def _check_messages(messages: Sequence[Message], options: EngineOptions) -> None:
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(
            f"a step must send at most {MAX_MESSAGES} messages, not {len(messages):,}", field="messages"
        )
    for place, message in enumerate(messages):
        options.check_value(f"messages[{place}].args", message.args)
        options.check_metadata(f"messages[{place}].metadata", message.metadata)
    size = sum(message.size for message in messages)
    if size > options.max_events_bytes:
        raise InvalidRequest(
            f"the messages of a step must have at most {options.max_events_bytes:,} bytes together "
            f"(max_events_bytes), not {size:,}",
            field="messages",
        )


def an_intent(intent: Any) -> Intent:
    """Return the Intent that a handler returned; TypeError if it returned anything else."""
    if not isinstance(intent, Intent):
        raise TypeError(f"a handler must return an Intent, not {type(intent).__name__}")
    return intent


def checked(intent: Any) -> Intent:
    """Return a raw handler's intent, fit to be saved; TypeError or InvalidRequest if it is not.

    A wrong one must fail its own step, not the batch in which it would be saved.
    """
    given = an_intent(intent)
    _check_action(given.action)
    _check_bytes("response", given.response)
    _check_bytes("aux_state", given.aux_state)
    if not given.events and given.metadata is None and not given.messages:
        return given
    return replace(
        given,
        events=tuple(map(_checked_event, given.events)),
        metadata=None if given.metadata is None else json_object(given.metadata, field="Intent.metadata"),
        messages=tuple(map(_checked_message, given.messages)),
    )


def _check_action(action: Any) -> None:
    if isinstance(action, tuple) and all(isinstance(each, (SetTimer, UnsetTimer)) for each in action):
        names = [each.name for each in action]
        if len(set(names)) < len(names):
            raise InvalidRequest("Intent.action must change each timer at most once", field="action")
    elif not isinstance(action, (SetTimer, UnsetTimer, Remove, type(None))):
        raise TypeError(
            "Intent.action must be SetTimer, UnsetTimer, a tuple of these, Remove or None, "
            f"not {type(action).__name__}"
        )


def _checked_event(event: Any) -> Event:
    if not isinstance(event, Event):
        raise TypeError(f"Intent.events must hold Events, not {type(event).__name__}")
    if not isinstance(event.payload, bytes):
        raise TypeError(f"Event.payload must be bytes, not {type(event.payload).__name__}")
    return replace(event, metadata=json_object(event.metadata, field="Event.metadata"))


def _checked_message(message: Any) -> Message:
    if not isinstance(message, Message):
        raise TypeError(f"Intent.messages must hold Messages, not {type(message).__name__}")
    if message.args is not None and not isinstance(message.args, bytes):
        raise TypeError(f"Message.args must be bytes or None, not {type(message.args).__name__}")
    if message.metadata is None:
        return message
    return replace(message, metadata=json_object(message.metadata, field="Message.metadata"))


def _check_bytes(field: str, value: Any) -> None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"Intent.{field} must be bytes or None, not {type(value).__name__}")
