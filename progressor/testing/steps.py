"""Steps without a database: one decorated function on a process of the test's choosing.

Rule: arguments, state, events and answer go through JSON and the namespace's codec, as they do in an
engine. What cannot be saved there fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Concatenate, Generic, TypedDict, TypeVar, Unpack, overload

from typing_extensions import TypeVar as DefaultedTypeVar

from progressor.calendars import Rule
from progressor.calendars.rules import on_clock
from progressor.codecs.codec import Owner
from progressor.config import EngineOptions
from progressor.errors import InvalidRequest, Reject
from progressor.handlers.codec import JSON, Wire, decode_any, encode, json_object, require_in_range
from progressor.handlers.dry_run import timers_after
from progressor.handlers.function import signature_of
from progressor.handlers.limits import bounded
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Draft, Process, WritableProcess
from progressor.handlers.served import Served, all_served_by
from progressor.handlers.state.shape import ANY, StateShape
from progressor.inputs import check_moment, check_text, check_timer
from progressor.messages.message import Message
from progressor.model import (
    Event,
    Failure,
    Intent,
    Metadata,
    ProcessStatus,
    Remove,
    Snapshot,
    Success,
    Task,
    TaskType,
    Timer,
    TimerStatus,
)
from progressor.timers.recurrence import Occurrence, recurrence_of
from progressor.transitions import RUNS_IN

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")
StateOfDone = DefaultedTypeVar("StateOfDone", default=Any)
Answer = DefaultedTypeVar("Answer", default=Any)

_OPTIONS = EngineOptions()
_NO_TASK = 1
_PROCESS_ID = "test"


@dataclass(frozen=True, slots=True)
class DoneTimer:
    """The timer after a step: the time at which it is due, `after` which time counted from the step."""

    at: datetime
    after: timedelta
    remove: bool = False


@dataclass(frozen=True, slots=True)
class Done(Generic[StateOfDone, Answer]):
    """The end of a step: all that an engine would save, and the answer of its caller.

    `timers` are the timers of the process after it, by name, `timer` that without one. `messages` are those
    that it sends, with their arguments as values.
    `rejected` is the Reject that the handler raised; then nothing is changed. `removed` is True if the
    process removes itself; `intent` is the whole as a raw handler returns it, None if it was rejected.
    """

    state: StateOfDone
    events: tuple[Event, ...]
    timer: DoneTimer | None
    answer: Answer
    metadata: Metadata
    rejected: Reject | None = None
    removed: bool = False
    intent: Intent | None = None
    timers: Mapping[str, DoneTimer] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()


class _About(TypedDict, total=False):
    """The keywords of a process in a test, beside its state."""

    process_id: str
    now: datetime | None
    metadata: Metadata | None
    history: Sequence[Event | Mapping[str, Any]]
    timer: datetime | None
    timers: Mapping[str, datetime]
    detail: str | None


class UnitProcess(WritableProcess[S]):
    """A process of a unit test: as a handler gets it, and `done` shows what was changed."""

    __slots__ = ()

    @property
    def done(self) -> Done[S, None]:
        """The changes so far, as an engine would save them; InvalidRequest if one cannot be saved."""
        return _done(self.intent(None), self.snapshot, self.task, self._wire, self._shape or ANY)


def process(
    state: S, *, namespace: str = "test", context: Any = None, **about: Unpack[_About]
) -> UnitProcess[S]:
    """Return a process with this state, for the test of a function that takes one.

    It can be read and changed as in a handler; `done` shows the changes. `metadata`, `history` (events, or
    their payloads), the due time of its `timer` and `now` are as the test states them.
    """
    task = Task(
        namespace=check_text("namespace", namespace),
        process_id="",
        task_id=_NO_TASK,
        task_type=TaskType.CALL,
        context=encode(context, field="context"),
    )
    task, snapshot = _standing(task, None, JSON, **about)
    made: UnitProcess[S] = UnitProcess(
        snapshot, task, wire=JSON, shape=StateShape(type(state)), draft=Draft()
    )
    made.state = state
    return made


class _Given(_About, total=False):
    """The keywords of a step beside its state and resources."""

    context: Any
    namespace: Namespace[Any] | None
    task_type: TaskType | None
    every: timedelta | Rule | None
    nominal: datetime | None


@overload
async def step(
    function: Callable[Concatenate[Process[S], A, ...], Coroutine[Any, Any, R]],
    args: A,
    /,
    *,
    state: S | None = None,
    resources: Mapping[str, Any] | None = None,
    **given: Unpack[_Given],
) -> Done[S, R]: ...
@overload
async def step(
    function: Callable[Concatenate[Process[S], ...], Coroutine[Any, Any, R]],
    args: None = None,
    /,
    *,
    state: S | None = None,
    resources: Mapping[str, Any] | None = None,
    **given: Unpack[_Given],
) -> Done[S, R]: ...
@overload
async def step(
    function: Callable[Concatenate[Process[S], ...], R],
    args: Any = None,
    /,
    *,
    state: S | None = None,
    resources: Mapping[str, Any] | None = None,
    **given: Unpack[_Given],
) -> Done[S, R]: ...
async def step(
    function: Callable[..., Any],
    args: Any = None,
    /,
    *,
    state: Any = None,
    resources: Mapping[str, Any] | None = None,
    context: Any = None,
    namespace: Namespace[Any] | None = None,
    task_type: TaskType | None = None,
    every: timedelta | Rule | None = None,
    nominal: datetime | None = None,
    **about: Unpack[_About],
) -> Done[Any, Any]:
    """Run a decorated function once, as an engine does, and return what it would save.

    `state` is that of the process before; `now` is the time of the step (default: the present), `resources`
    are its keyword-only parameters by name. A timer recurs by `every`, and this step is for its time
    `nominal` (default: now). `metadata`, `history` (events, or their payloads), the due time
    of its `timer` and, for a repair, the `detail` of its failure are as stated. A function of several
    namespaces or types of tasks needs `namespace` or `task_type`. Its errors are raised as they are, but a
    Reject, which is `rejected`; InvalidRequest for what an engine refuses.
    """
    served = _served(function, namespace, task_type)
    home = served.home.bound(_bindable(function, resources or {}))
    plain = encode(args, field="args")
    if plain is not None:
        require_in_range(plain, field="args")
    of = Owner(home.name, about.get("process_id", _PROCESS_ID))
    task = Task(
        namespace=home.name,
        process_id=of.process_id,
        task_id=_NO_TASK,
        task_type=served.task_type,
        name=served.name,
        args=_OPTIONS.check_value("args", None if plain is None else home.wire.seal(plain, "args", of)),
        context=_OPTIONS.check_value("context", home.wire.encode(context, "context", of)),
    )
    if served.task_type is TaskType.INIT and state is not None:
        raise InvalidRequest("an init makes the state: it takes none", field="state")
    stored = _stored(state, home.wire, home.shape, of)
    task, snapshot = _standing(task, stored, home.wire, **about)
    task = _recurring(task, every, nominal)
    try:
        intent = await home.process(task, Process(snapshot, task, wire=home.wire, shape=home.shape))
    except Reject as refusal:
        if served.task_type.is_timer:
            raise
        kept = _done(Intent(), snapshot, task, home.wire, home.shape)
        return Done(kept.state, (), kept.timer, None, kept.metadata, rejected=refusal, timers=kept.timers)
    outcome = bounded(Success(intent), _OPTIONS)
    if isinstance(outcome, Failure):
        raise InvalidRequest(outcome.error, field="result")
    answer = (
        None
        if intent.response is None
        else served.read_answer(home.wire.unseal(intent.response, "response", task))
    )
    return _done(intent, snapshot, task, home.wire, home.shape, answer=answer)


def _served(target: object, namespace: Namespace[Any] | None, task_type: TaskType | None) -> Served:
    found = [
        each
        for each in all_served_by(target)
        if (namespace is None or each.home is namespace) and task_type in (None, each.task_type)
    ]
    if len(found) == 1:
        return found[0]
    label = getattr(target, "__name__", None) or f"{target!r:.80}"
    if found:
        raise InvalidRequest(f"{label} serves several: state namespace= or task_type=", field="function")
    raise InvalidRequest(
        f"{label} serves nothing: give a function that is decorated by a namespace", field="function"
    )


def _bindable(target: Callable[..., Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resources of a namespace: None for those of its other functions, which do not run."""
    parameters = signature_of(target).parameters.values()
    wanted = [
        each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    ]
    if missing := [name for name in wanted if name not in given]:
        raise InvalidRequest(
            f"{getattr(target, '__name__', 'it')} takes resources that are not given: {', '.join(missing)}",
            field="resources",
        )
    return _OrNone(given)


class _OrNone(dict[str, Any]):
    def __missing__(self, name: str) -> None:
        return None


def _recurring(task: Task, every: Any, nominal: Any) -> Task:
    """Return the task of a timer that recurs by a rule; as it is without one."""
    if every is None and nominal is None:
        return task
    if every is None or not task.task_type.is_timer or task.running_time is None:
        raise InvalidRequest("every= and nominal= are for a timer: nominal= needs every=", field="every")
    meant = task.running_time if nominal is None else check_moment("nominal", nominal)
    recurrence = recurrence_of(every, "fixed", "one", None, None, None)
    return task._replace(args=Occurrence(recurrence, on_clock(every, meant)).as_bytes())


def _stored(state: Any, wire: Wire, shape: StateShape, of: Owner) -> bytes | None:
    """Return a state as it is stored; InvalidState if it is not of the namespace's type."""
    if state is None:
        return None
    plain = shape.write_changed(state, before=None, field="state")
    return None if plain is None else wire.seal(plain, "state", of)


def _standing(
    task: Task,
    stored: bytes | None,
    wire: Wire,
    *,
    process_id: str = _PROCESS_ID,
    now: datetime | None = None,
    metadata: Metadata | None = None,
    history: Sequence[Event | Mapping[str, Any]] = (),
    timer: datetime | None = None,
    timers: Mapping[str, datetime] = MappingProxyType({}),
    detail: str | None = None,
) -> tuple[Task, Snapshot]:
    """Return the task and the process at its beginning."""
    at = datetime.now(UTC) if now is None else check_moment("now", now)
    of = Owner(task.namespace, process_id)
    status = RUNS_IN[task.task_type]
    due = {**({} if timer is None else {"": timer}), **timers}
    is_broken = status is ProcessStatus.ERROR
    snapshot = Snapshot(
        process_no=1,
        namespace=task.namespace,
        process_id=check_text("process_id", process_id),
        status=status,
        previous_status=ProcessStatus.RUNNING if is_broken else None,
        status_changed_at=at,
        created_at=at,
        detail=(detail or "broken by a test") if is_broken else None,
        aux_state=stored,
        metadata=json_object(metadata or {}, field="metadata"),
        corrupted_by=_NO_TASK if is_broken else None,
        last_event_id=len(history),
        timers=tuple(
            Timer(TaskType.TIMEOUT, check_moment("timer", at), TimerStatus.WAITING, check_timer(name))
            for name, at in sorted(due.items(), key=itemgetter(1))
        ),
        history=tuple(_event(each, place, wire, of) for place, each in enumerate(history, 1)),
    )
    return task._replace(process_id=process_id, scheduled_time=at, running_time=at), snapshot


def _event(given: Event | Mapping[str, Any], place: int, wire: Wire, of: Owner) -> Event:
    event = given if isinstance(given, Event) else Event(given)
    payload = wire.encode(event.payload, "event", of, field=f"history[{place - 1}]") or b"null"
    return Event(payload, event.metadata, event.event_id or place, event.timestamp, event.task_id)


def _done(
    intent: Intent, before: Snapshot, task: Task, wire: Wire, shape: StateShape, *, answer: Any = None
) -> Done[Any, Any]:
    """Return what an engine would have saved, read back from its bytes."""
    saved = before.aux_state if intent.aux_state is None else intent.aux_state
    now = task.running_time or before.created_at
    last = before.last_event_id
    timers = {
        name: DoneTimer(each.at, each.at - now, each.remove)
        for name, each in timers_after(intent, before, task).items()
    }
    events = tuple(
        Event(
            wire.decode_any(each.payload, "event", before), each.metadata, last + place, now, task.task_id
        )
        for place, each in enumerate(intent.events, 1)
    )
    return Done(
        state=None if saved is None else shape.read(wire.unseal(saved, "state", before)),
        events=events,
        timer=timers.get(""),
        timers=timers,
        answer=answer,
        metadata=before.metadata if intent.metadata is None else intent.metadata,
        removed=isinstance(intent.action, Remove),
        intent=intent,
        messages=tuple(replace(each, args=decode_any(each.args)) for each in intent.messages),
    )
