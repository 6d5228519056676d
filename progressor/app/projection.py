"""Projections: functions that keep tables of one's own, made of what processes do.

Rule: a projection says what is done, and holds nothing that runs. What its functions write is committed
together with how far it has come, so each event counts once.
"""

from __future__ import annotations

import fnmatch
import inspect
import typing
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from progressor.config import RetryPolicy
from progressor.errors import InvalidRequest
from progressor.handlers.function import signature_of
from progressor.handlers.step_connection import wanted_connection
from progressor.inputs import all_names_like, check_count, check_text
from progressor.model import FEED_KINDS, FeedKind, WantedConnection
from progressor.rights import check_patterns

ProjectionFunction = Callable[..., Awaitable[None]]
OnFailure = Literal["block", "park"]
"""The ways to go on when an event cannot be delivered: hold up what comes behind it, or put it aside."""

MOST_NAMES = 100
"""The most names of events that a reader of the feed may ask for; beyond, it gets all."""
DELIVERY_RETRIES = RetryPolicy(max_interval=timedelta(minutes=1), max_attempts=8)
"""About two minutes, for an event that is to blame itself."""


class ProjectedOn(NamedTuple):
    """A function of a projection, and what it is called for; `name` None: any event."""

    namespace: str
    name: str | None
    kind: FeedKind
    function: ProjectionFunction

    def takes(self, namespace: str, kind: str, name: str | None) -> bool:
        """Return whether the function is called for an entry of the feed."""
        if kind != self.kind or (self.name is not None and name != self.name):
            return False
        return fnmatch.fnmatchcase(namespace, self.namespace)


class Projection:
    """A read model in the database of the processes: `ledger = Projection("ledger")`.

    It is given to an App, whose engines run it, one at a time. `start` says where it begins, as `after` of
    Client.subscribe. Each `version` has a place of its own, so that a new one is built beside the old one.

    An event at which a function raises is tried again by `retries`; None: eight times within some two
    minutes. Then it holds up what comes behind it
    (`on_failure="block"`), or is put aside with what comes later of its process (`"park"`); an operator has
    it tried again, or skipped. `timeout` bounds the functions' work on a batch. InvalidRequest names an
    argument that cannot be used.
    """

    def __init__(
        self,
        name: str,
        *,
        version: int = 1,
        start: str | datetime = "beginning",
        on_failure: OnFailure = "block",
        retries: RetryPolicy | None = None,
        timeout: timedelta = timedelta(minutes=1),
    ) -> None:
        number = check_count("version", version, least=1)
        self.name: Final = check_text("name", name, limit=200)
        self.subscription: Final = self.name if number == 1 else f"{self.name}.v{number}"
        """The name of its subscription."""
        self.start: Final = start
        self.on_failure: Final = check_on_failure(on_failure)
        self.retries: Final = retries or DELIVERY_RETRIES
        if not isinstance(timeout, timedelta) or not timedelta() < timeout <= timedelta(hours=1):
            raise InvalidRequest("timeout must be a timedelta above 0 and up to an hour", field="timeout")
        self.timeout: Final = timeout
        self.functions: list[ProjectedOn] = []
        self.clearing: ProjectionFunction | None = None
        """The function that empties its tables, before anything is read from the beginning."""
        self._wanted: WantedConnection | None = None

    def __repr__(self) -> str:
        return f"<Projection {self.subscription}>"

    def on(
        self, namespace: str, name: str | None = None, *, kind: FeedKind = "event"
    ) -> Callable[[ProjectionFunction], ProjectionFunction]:
        """Decorate an async function that is called for events, as `(event, connection)`.

        `namespace` may be a pattern (`billing.*`), `name` is that of the event, None: any. Other kinds of
        FeedEvent have no name. The connection is of psycopg, or of the type with which it is annotated: an
        AsyncConnection or AsyncSession of SQLAlchemy. All functions of a projection get the same one.
        """
        (pattern,) = check_patterns("namespace", [namespace])
        if kind not in FEED_KINDS:
            raise InvalidRequest(
                f"kind must be one of {all_names_like(str(kind), FEED_KINDS)}", field="kind"
            )
        if name is not None and kind != "event":
            raise InvalidRequest(f"{kind} has no name: leave it out", field="name")
        named = None if name is None else check_text("name", name)

        def add(function: ProjectionFunction) -> ProjectionFunction:
            self._check_function(function, ["event", "connection"])
            self.functions.append(ProjectedOn(pattern, named, kind, function))
            return function

        return add

    def may_want(self, namespace: str) -> bool:
        """Return whether some function is called for events of a name in this namespace."""
        return any(
            each.name is not None and each.takes(namespace, "event", each.name) for each in self.functions
        )

    def clear(self, function: ProjectionFunction) -> ProjectionFunction:
        """Decorate an async function that empties the tables, as `(connection)`.

        It is called in the first transaction of a projection that begins at the beginning, also if an
        operator lets it begin there again.
        """
        self._check_function(function, ["connection"])
        self.clearing = function
        return function

    @property
    def wanted(self) -> WantedConnection:
        """The connection that its functions get; InvalidRequest if it has none."""
        if self._wanted is None or not self.functions:
            raise InvalidRequest(
                f"projection {self.name!r} has no function: decorate one with on(namespace, name)",
                field="projections",
            )
        return self._wanted

    @property
    def names(self) -> set[str] | None:
        """The names of the events that its functions are called for; None: any."""
        named = {each.name for each in self.functions if each.kind == "event"}
        names = {name for name in named if name is not None}
        return names if names and names == named and len(names) <= MOST_NAMES else None

    def _check_function(self, function: ProjectionFunction, parameters: list[str]) -> None:
        name = getattr(function, "__name__", "function")
        if not inspect.iscoroutinefunction(function):
            raise InvalidRequest(f"{name} must be an async function", field=name)
        found = list(signature_of(function).parameters.values())
        if len(found) != len(parameters) or any(each.kind is each.KEYWORD_ONLY for each in found):
            raise InvalidRequest(f"{name} must take ({', '.join(parameters)})", field=name)
        wanted = _wanted(function, found[-1].name, name)
        if self._wanted not in (None, wanted):
            raise InvalidRequest(
                f"{name}: all functions of projection {self.name!r} get the same connection", field=name
            )
        self._wanted = wanted


def check_on_failure(value: object) -> OnFailure:
    """Return what to do when an event cannot be delivered; InvalidRequest if it is neither."""
    if value not in typing.get_args(OnFailure):
        raise InvalidRequest(f"on_failure must be block or park, not {value!r:.40}", field="on_failure")
    return typing.cast("OnFailure", value)


def _wanted(function: Callable[..., Any], parameter: str, name: str) -> WantedConnection:
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        raise InvalidRequest(f"{name}: its annotations cannot be read: {error}", field=name) from error
    if parameter not in hints or hints[parameter] is Any:
        return WantedConnection("psycopg", True, object)
    return wanted_connection(hints[parameter], name=name, is_async=True)
