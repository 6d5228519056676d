"""Views of a process, over a snapshot: for a handler, and from `client.get`.

Rule: the snapshot is never changed. The changes of a handler gather in its view, and become one Intent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NoReturn, Unpack, cast

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from progressor.errors import InvalidRequest, InvalidState, Undecryptable
from progressor.errors.wordings import named
from progressor.handlers.codec import (
    JSON,
    Wire,
    breaks_process,
    encode,
    encode_json,
    faults,
    json_object,
)
from progressor.handlers.state.shape import ANY, StateShape
from progressor.handlers.state.unknown_fields import UnknownField
from progressor.inputs import check_text
from progressor.messages.message import Message
from progressor.model import Action, Event, Intent, Metadata, ProcessStatus, Remove, Snapshot, Task, Timer
from progressor.timers import Recurring, TimerChange, UnsetTimer, timer_of

StateT = TypeVar("StateT", default=Any)

_UNREAD: Final = object()


class Draft:
    """The draft of an Intent: the timers, events and messages of a typed handler so far."""

    __slots__ = ("events", "messages", "removes", "timers")

    def __init__(self) -> None:
        self.timers: dict[str, TimerChange] = {}
        self.removes = False
        self.events: list[Event] = []
        self.messages: list[Message] = []

    def change(self, timer: TimerChange) -> None:
        """Set or unset a timer; of several changes of one the last counts, and undoes a removal."""
        self.timers[timer.name], self.removes = timer, False

    @property
    def action(self) -> Action | tuple[TimerChange, ...] | None:
        """The action of the Intent."""
        if self.removes:
            return Remove()
        changes = tuple(self.timers.values())
        return changes if len(changes) > 1 else changes[0] if changes else None


class InvalidContext(InvalidRequest):
    """The context of a request cannot be read: the request is refused, and the process lives on."""


class Process(Generic[StateT]):
    """A process as it was when the step began, or when `client.get` read it.

    A typed handler changes it: `state`, `metadata`, `emit`, `send`, timers and `remove` are saved with the
    step. A raw handler returns an Intent instead: `state =`, `emit`, `send`, timers and `remove` raise
    InvalidRequest there. In a client they do so too, and so do `task`, `now` and `context`.
    """

    __slots__ = (
        "_draft",
        "_history",
        "_metadata",
        "_plain_state",
        "_shape",
        "_state",
        "_task",
        "_unknown",
        "_wire",
        "snapshot",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        task: Task | None = None,
        *,
        wire: Wire = JSON,
        shape: StateShape | None = ANY,
        draft: Draft | None = None,
    ) -> None:
        self.snapshot: Final = snapshot
        self._draft = draft
        self._task = task
        self._wire = wire
        self._shape = shape
        self._state: Any = _UNREAD
        self._plain_state: bytes | None = None
        self._unknown: Sequence[UnknownField] = ()
        self._metadata: Metadata | None = None
        self._history: tuple[Event, ...] | None = None

    def __repr__(self) -> str:
        of = self.snapshot
        return f"<Process {named(of.namespace, of.process_id)} {of.status} events={of.last_event_id}>"

    def read_as(self, shape: StateShape) -> Process[Any]:
        """Return the same process with a state of this shape; one of a raw handler stays as it is."""
        return self if self._shape is None else Process(self.snapshot, wire=self._wire, shape=shape)

    @property
    def namespace(self) -> str:
        """The name of its namespace."""
        return self.snapshot.namespace

    @property
    def process_id(self) -> str:
        """Its id within the namespace."""
        return self.snapshot.process_id

    @property
    def status(self) -> ProcessStatus:
        """`init`, `running` or `error`."""
        return self.snapshot.status

    @property
    def previous_status(self) -> ProcessStatus | None:
        """The status before the present one."""
        return self.snapshot.previous_status

    @property
    def status_changed_at(self) -> datetime:
        """The time at which it came into its status."""
        return self.snapshot.status_changed_at

    @property
    def created_at(self) -> datetime:
        """The time at which it was started or put."""
        return self.snapshot.created_at

    @property
    def detail(self) -> str | None:
        """The error that broke it; None unless its status is `error`."""
        return self.snapshot.detail

    @property
    def corrupted_by(self) -> int | None:
        """The id of the task that broke it; None unless its status is `error`."""
        return self.snapshot.corrupted_by

    @property
    def timer(self) -> Timer | None:
        """Its timer without a name, with its status; None if it has none."""
        return self.timers.get("")

    @property
    def timers(self) -> dict[str, Timer]:
        """Its timers with their statuses, by name, earliest first; '' is the name of the one without."""
        return {timer.name: timer for timer in self.snapshot.timers}

    @property
    def first_event_id(self) -> int:
        """The first event that the retention has left, in a client; 1 if it has deleted none.

        InvalidRequest in a handler, which sees it by the first event that it loads.
        """
        if self._task is not None:
            raise InvalidRequest("first_event_id is for clients: see history[0].event_id", field="history")
        return self.snapshot.first_event_id

    @property
    def last_event_id(self) -> int:
        """The number of its events, loaded or not, deleted or not."""
        return self.snapshot.last_event_id

    @property
    def aux_state(self) -> bytes | None:
        """The state as it is stored, in bytes."""
        return self.snapshot.aux_state

    @property
    def state(self) -> StateT:
        """The state, of the type that the namespace declares; None before the first is set.

        A handler assigns it or changes it in place. InvalidState if the stored one is not of that type.
        """
        if self._state is _UNREAD:
            self._state = self._read_state()
        state: StateT = self._state
        return state

    @state.setter
    def state(self, state: StateT) -> None:
        self._drafted("state=")
        self._state = state

    @property
    def metadata(self) -> Metadata:
        """The metadata by which `search` finds it; a handler changes the dict in place."""
        if self._metadata is None:
            self._metadata = _copy(self.snapshot.metadata)
        return self._metadata

    @property
    def history(self) -> tuple[Event, ...]:
        """The events that were loaded, with their payloads decoded."""
        if self._history is None:
            self._history = tuple(self._wire.event(each, self.snapshot) for each in self.snapshot.history)
        return self._history

    @property
    def task(self) -> Task:
        """The task that runs now; InvalidRequest outside of handlers."""
        return self._task if self._task is not None else self._only_in_handlers("task")

    @property
    def now(self) -> datetime:
        """The time at which this step began, by PostgreSQL's clock; InvalidRequest outside of handlers."""
        now = self.task.running_time if self._task is not None else self._only_in_handlers("now")
        if now is None:
            raise InvalidRequest("the task does not run, so there is no now", field="now")
        return now

    @property
    def context(self) -> Any:
        """The `context=` of the caller, None without one; InvalidRequest if it cannot be decoded."""
        stored = self.task.context if self._task is not None else self._only_in_handlers("context")
        try:
            return self._wire.decode(stored, "context", self.snapshot)
        except Exception as error:
            if breaks_process(error):
                raise
            raise InvalidContext(
                f"context cannot be decoded ({type(error).__name__}): the client must send JSON, "
                "in the namespace's codec",
                field="context",
            ) from error

    def emit(self, event: str | BaseModel | object, /, **payload: Any) -> None:
        """Append an event: `emit("paid", amount=10)`, or a model, named after its class.

        InvalidRequest for a name that is no text of 1 to 256 characters, or values that have no JSON form.
        """
        draft = self._drafted("emit()")
        name, body = _named(event, payload)
        sealed = self._wire.seal(encode_json(body, field=f"event {name}"), "event", self.snapshot)
        draft.events.append(Event(sealed, {"name": name}))

    def send(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        """Send a notice to another process, or to this one, once this step is saved: one step there.

        Messages of one process to another arrive in the order in which they were sent. One that cannot be
        delivered is noted in the log. With an `idempotency_key` messages of several steps become one step
        of the target. InvalidRequest for a name that no target has, or arguments that have no JSON form.
        """
        plain = encode(args, field="args")
        message = Message(namespace, process_id, name, plain, idempotency_key=idempotency_key)
        self._drafted("send()").messages.append(message)

    def send_start(
        self, namespace: str, process_id: str, args: Any = None, *, idempotency_key: str | None = None
    ) -> None:
        """Start another process once this step is saved; as `send`. One that exists stays as it is."""
        plain = encode(args, field="args")
        message = Message(namespace, process_id, args=plain, kind="start", idempotency_key=idempotency_key)
        self._drafted("send_start()").messages.append(message)

    def set_timer(
        self,
        name: str = "",
        /,
        *,
        after: timedelta | None = None,
        at: datetime | None = None,
        remove: bool = False,
        **recurrence: Unpack[Recurring],
    ) -> None:
        """Run the timeout handler (or remove the process) at a time; of each name the last call counts.

        A process has a timer without a name, and others by name: at most 32. Exactly one of `after`, which
        counts from the commit, and `at` (with a zone), or `every` and what else SetTimer takes, else
        InvalidRequest. The step fails if the namespace has no timeout handler for it, unless `remove`.
        """
        self._drafted("set_timer()").change(timer_of(at, after, remove, name, **recurrence))

    def unset_timer(self, name: str = "", /) -> None:
        """Cancel the process's timer of this name; without one, that without a name. Others stay."""
        self._drafted("unset_timer()").change(UnsetTimer(name=name))

    def remove(self) -> None:
        """Remove the process with all its rows when this step is saved."""
        self._drafted("remove()").removes = True

    def _drafted(self, what: str) -> Draft:
        return self._draft if self._draft is not None else self._only_in_handlers(what)

    def _only_in_handlers(self, what: str) -> NoReturn:
        if self._task is None:
            raise InvalidRequest(
                f"{what} works only in a handler: this process was read by a client", field=what
            )
        raise InvalidRequest(
            f"{what} belongs to the typed layer: a raw handler returns it in its Intent", field=what
        )

    def _read_state(self) -> Any:
        stored = self.snapshot.aux_state
        if stored is None:
            return None
        self._plain_state = self._wire.unseal(stored, "state", self.snapshot)
        if self._shape is None:
            return self._plain_state
        try:
            return self._value(self._shape, self._plain_state)
        except ValidationError as error:
            raise InvalidState(
                f"the stored state of {named(self.namespace, self.process_id)} "
                f"is no {self._shape.name}: {faults(error, 'state')}"
            ) from None

    def _value(self, shape: StateShape, plain: bytes) -> Any:
        return shape.read(plain)


class WritableProcess(Process[StateT]):
    """The view that a typed handler gets; `intent` gathers its changes."""

    __slots__ = ()

    def intent(self, response: bytes | None) -> Intent:
        """Gather the changes of the handler; InvalidState or InvalidRequest if one cannot be saved."""
        draft = self._drafted("intent()")
        return Intent(
            events=tuple(draft.events),
            action=draft.action,
            response=response,
            aux_state=self._changed_state(),
            metadata=self._changed_metadata(),
            messages=tuple(draft.messages),
        )

    def _changed_state(self) -> bytes | None:
        state = self._state
        if state is _UNREAD or (state is None and self.snapshot.aux_state is None):
            return None
        shape = cast("StateShape", self._shape)
        if self._plain_state is None and shape.keeps_unknown:
            # The handler set it unread. A stored one that nobody can read is replaced whole.
            try:
                self._read_state()
            except Exception as error:
                # Not so one that others can: they have its key.
                if isinstance(error, Undecryptable):
                    raise
        plain = shape.write_changed(state, before=self._plain_state, field="state", unknown=self._unknown)
        return None if plain is None else self._wire.seal(plain, "state", self.snapshot)

    def _value(self, shape: StateShape, plain: bytes) -> Any:
        value, self._unknown = shape.read_stored(plain)
        return value

    def _changed_metadata(self) -> Metadata | None:
        if self._metadata is None:
            return None
        before = self.snapshot.metadata
        after = json_object(self._metadata, field="metadata")
        # Compared as JSON, because in Python 1, 1.0 and True are equal.
        return None if encode_json(after) == encode_json(before) else after


def _named(event: object, payload: dict[str, Any]) -> tuple[str, object]:
    if isinstance(event, str):
        return check_text("event name", event), payload
    if isinstance(event, type) or not (isinstance(event, BaseModel) or is_dataclass(event)):
        raise InvalidRequest(f"emit() takes a name or a model, not {type(event).__name__}", field="event")
    if payload:
        raise InvalidRequest("emit(model) takes no further values", field="event")
    return type(event).__name__, event


def _copy(value: Any) -> Any:
    """Return a copy of a JSON value, so that no change in place reaches the snapshot."""
    if isinstance(value, Mapping):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copy(part) for part in value]
    return value
