"""Schedules as a namespace declares them: when, what is sent then, and what happens beside a run under way.

Rule: a declaration is a value. What has run stands in the process of the schedule.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

from progressor.calendars import Rule
from progressor.calendars.wall_clock import zone_of
from progressor.errors import InvalidRequest
from progressor.handlers.codec import encode, json_object
from progressor.handlers.function import signature_of
from progressor.handlers.served import served_by
from progressor.inputs import NAMESPACE_PATTERN, check_namespace, check_text
from progressor.messages.message import Message
from progressor.model import TaskType
from progressor.timers import SetTimer
from progressor.timers.changes import Between
from progressor.timers.recurrence import CatchUp

Overlap = Literal["skip", "queue", "allow"]
Ids: TypeAlias = str | Callable[[datetime], str]
_Name: TypeAlias = str | Callable[..., Any]

# Characters of `namespace/name`: the key of a message holds it, and a time.
_MOST_NAMED = 200
_NAME = re.compile(NAMESPACE_PATTERN)


class Recipient(NamedTuple):
    """The process that a schedule notifies, and the name of the call."""

    namespace: str
    process_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Each:
    """Every running process of the namespace of a schedule, or those whose metadata contain `metadata`.

    Each of them gets a notice of `call`, the function or its name.
    """

    call: _Name
    metadata: Mapping[str, Any] | None = None


class Doing(TypedDict, total=False):
    """The keywords of Namespace.schedule, behind its times."""

    start: Ids | None
    notify: tuple[str, str, str] | tuple[_Name, str] | None
    each: Each | None
    args: Any
    overlap: Overlap
    catch_up: CatchUp
    within: timedelta | None
    jitter: timedelta | None
    between: Between | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule of a namespace, checked as it is declared; see Namespace.schedule."""

    namespace: str
    name: str
    every: timedelta | Rule
    start: Ids | None = None
    notify: Any = None
    each: Each | None = None
    args: Any = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"
    within: timedelta | None = None
    jitter: timedelta | None = None
    between: Between | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidRequest(
                f"the name of a schedule must match {NAMESPACE_PATTERN.strip('^$')}, not {self.name!r:.80}",
                field="name",
            )
        if len(self.process_id) > _MOST_NAMED:
            raise InvalidRequest(
                f"namespace and name of a schedule must have at most {_MOST_NAMED - 1} characters together",
                field="name",
            )
        if sum(each is not None for each in (self.start, self.notify, self.each)) != 1:
            raise InvalidRequest(
                f"schedule {self.name} needs exactly one of start=, notify= and each=", field="start"
            )
        if self.overlap not in get_args(Overlap):
            raise InvalidRequest("overlap must be 'skip', 'queue' or 'allow'", field="overlap")
        _ = self.timer
        if isinstance(self.start, str):
            check_text("start", self.start)
        elif self.start is not None and not callable(self.start):
            raise InvalidRequest(
                "start must be an id, or a function that makes one of a time", field="start"
            )
        if self.notify is not None:
            object.__setattr__(self, "notify", _recipient(self.notify))
        if self.each is not None:
            object.__setattr__(self, "each", _checked(self.each, self.namespace))
        _check_functions(start=self.start, args=self.args)
        if not callable(self.args):
            encode(self.args, field="args")

    @property
    def process_id(self) -> str:
        """The id of its process."""
        return f"{self.namespace}/{self.name}"

    @property
    def timer(self) -> SetTimer:
        """Its timer, which has the id of its process as name; InvalidRequest if it cannot be set."""
        names = ("every", "catch_up", "within", "jitter", "between")
        return SetTimer(name=self.process_id, **{name: getattr(self, name) for name in names})

    @property
    def target(self) -> str:
        """The process or namespace that gets what it sends, for people."""
        if self.each is not None:
            chosen = "" if self.each.metadata is None else f" with {dict(self.each.metadata)}"
            return f"notify {self.each.call} to each of {self.namespace}{chosen}"
        if self.start is not None:
            return f"start {self.namespace}" + (f"/{self.start}" if isinstance(self.start, str) else "")
        return f"notify {self.notify.name} to {self.notify.namespace}/{self.notify.process_id}"

    @property
    def functions(self) -> Mapping[str, str]:
        """The function that its target must have, by namespace, as workers list theirs."""
        if self.start is not None:
            return {self.namespace: "init"}
        if self.each is not None:
            return {self.namespace: f"call {self.each.call}"}
        return {self.notify.namespace: f"call {self.notify.name}"}

    def message(self, nominal: datetime, *, to: str | None = None) -> Message:
        """Return what it sends for a nominal time; with `each`, `to` this process.

        The key makes a repetition for the same time one with the first. Errors of `start` and `args` pass.
        """
        shown = nominal.astimezone(zone_of(str(getattr(self.every, "tz", "UTC"))))
        if nominal.utcoffset() and nominal.utcoffset() != shown.utcoffset():
            # The clock has changed since the timer was set: it is still the time of that day.
            shown = nominal
        args = encode(self.args(shown) if callable(self.args) else self.args, field="args")
        key = f"schedule/{self.process_id}/{nominal.astimezone(UTC).isoformat()}"
        if self.start is not None:
            process_id = self.start if isinstance(self.start, str) else self.start(shown)
            return Message(self.namespace, process_id, args=args, kind="start", idempotency_key=key)
        if self.each is not None:
            return Message(self.namespace, str(to), str(self.each.call), args, idempotency_key=key)
        target: Recipient = self.notify
        return Message(target.namespace, target.process_id, target.name, args, idempotency_key=key)


def schedule_of(key: str | None) -> tuple[str, str] | None:
    """Return namespace and name of the schedule that draws such keys; None for any other key."""
    head, _, rest = (key or "").partition("/")
    namespace, slash, name = rest.rpartition("/")[0].partition("/")
    return (namespace, name) if head == "schedule" and slash and name else None


def _check_functions(**given: Any) -> None:
    # At its first time a wrong one would fail, perhaps at night.
    for field, function in given.items():
        if not callable(function):
            continue
        if inspect.iscoroutinefunction(function):
            raise InvalidRequest(f"{field} must not be an async function: it only computes", field=field)
        try:
            signature_of(function).bind(None)
        except TypeError as error:
            raise InvalidRequest(
                f"{field} must be a function of one argument, the nominal time ({error})", field=field
            ) from None
        except ValueError:
            # A builtin that does not tell its signature.
            continue


def _recipient(given: Any) -> Recipient:
    match given:
        case (str(namespace), str(process_id), str(name)):
            return Recipient(
                check_namespace(namespace),
                check_text("process_id", process_id),
                check_text("name", name),
            )
        case (function, str(process_id)) if callable(function):
            served = served_by(function, TaskType.CALL)
            return Recipient(served.namespace, check_text("process_id", process_id), str(served.name))
    raise InvalidRequest(
        "notify must be (namespace, process id, name of a call), or (function, process id)", field="notify"
    )


def _checked(each: Any, namespace: str) -> Each:
    if not isinstance(each, Each):
        raise InvalidRequest(f"each must be an Each, not {type(each).__name__}", field="each")
    metadata = None if each.metadata is None else json_object(dict(each.metadata), field="each")
    if isinstance(each.call, str):
        return Each(check_text("call", each.call), metadata)
    served = served_by(each.call, TaskType.CALL)
    if served.namespace != namespace:
        raise InvalidRequest(
            f"each notifies processes of {namespace}, but the function is of {served.namespace}",
            field="each",
        )
    return Each(str(served.name), metadata)
