"""Handles of processes: a client's methods on one process, without their first two arguments."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from progressor.client.asks import Timeout
from progressor.client.requests import CallOptions, Options, Requesting, StartOptions
from progressor.client.results import ProcessChange, TraceEntry
from progressor.client.submits import Submitting
from progressor.client.timers import Timing
from progressor.errors import InvalidRequest
from progressor.handlers.process import Process, StateT
from progressor.handlers.served import (
    A,
    ArgumentsMissing,
    Async,
    AsyncAlone,
    AsyncAny,
    Plain,
    PlainAlone,
    PlainAny,
    R,
    served_by,
)
from progressor.inputs import HistoryRange, check_namespace, check_text
from progressor.model import Metadata, TaskType
from progressor.monitoring import Mailbox
from progressor.timers import TimerChange

if TYPE_CHECKING:
    from progressor.handlers.namespace import Namespace

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_SERVED = {
    "start": TaskType.INIT,
    "call": TaskType.CALL,
    "notify": TaskType.CALL,
    "repair": TaskType.REPAIR,
}


class ProcessClient(Requesting, Submitting, Timing, ABC):
    """The methods on one process that every client has, over PostgreSQL or over HTTP.

    `timeout` is a timedelta or seconds; None means `reply_timeout` of a Client, `timeout` of an HttpClient
    (both 60 s by default). Every method raises InvalidRequest for bad input, NamespaceNotFound for a
    namespace that is not known, and StorageUnavailable if PostgreSQL or the API cannot be reached.
    """

    @abstractmethod
    async def get(
        self,
        namespace: str,
        process_id: str,
        *,
        range: HistoryRange | None = HistoryRange(),  # noqa: A002, B008 - pinned name; frozen
        timeout: Timeout = None,
    ) -> Process[Any]:
        """Return a process with a range of its history (`range=None`: none); wait for a running init.

        Raise ProcessNotFound if there is none, and ReplyTimeout if its init takes longer than `timeout`.
        """

    @abstractmethod
    async def put(
        self,
        namespace: str,
        process_id: str,
        *,
        state: Any = None,
        events: Sequence[Any] = (),
        action: TimerChange | Sequence[TimerChange] | None = None,
        metadata: Metadata | None = None,
        status: Literal["running", "error"] = "running",
    ) -> None:
        """Import a process as it is, with its history (dicts or models, numbered from 1) and timers.

        Raise ProcessAlreadyExists if the id is taken, and InvalidRequest for a value that cannot be put.
        """

    @abstractmethod
    def watch(
        self, namespace: str, process_id: str, *, after: str | None = None, state: bool = False
    ) -> AsyncIterator[ProcessChange]:
        """Return a process as its steps are committed: `async for change in client.watch(…): …`."""

    @abstractmethod
    async def trace(
        self,
        namespace: str,
        process_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[TraceEntry]:
        """Return the tasks of a process in order, behind id `after`: all, the first `limit`, or the `last`.

        Raise ProcessNotFound if there is no such process, and InvalidRequest for both `limit` and `last`.
        """

    @abstractmethod
    async def mailbox(self, namespace: str, process_id: str) -> Mailbox:
        """Return how many requests wait on a process, for how long, and when they will be through.

        Raise ProcessNotFound if there is no such process.
        """

    @abstractmethod
    async def remove(self, namespace: str, process_id: str) -> None:
        """Remove a process with all its rows now, whatever it does; its callers get ProcessNotFound.

        Raise ProcessNotFound if there is no such process.
        """


def _on(
    method: Callable[Concatenate[ProcessClient, str, str, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ProcessHandle, P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    def on_this_process(
        handle: ProcessHandle, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        # A Client and an HttpClient have methods of their own under this name.
        ask: Callable[..., Coroutine[Any, Any, T]] = getattr(handle.client, method.__name__)
        return ask(handle.namespace, handle.process_id, *args, **kwargs)

    return _shown_as(method)(on_this_process)


def _shown_as(method: Callable[..., Any]) -> Callable[[F], F]:
    """Show a function as a method of the client, without the two arguments that the handle fills in."""

    def shown(function: F) -> F:
        self, _, _, *rest = inspect.signature(method).parameters.values()
        function.__doc__ = method.__doc__
        function.__signature__ = inspect.Signature([self, *rest])  # type: ignore[attr-defined] # for inspect
        return function

    return shown


class ProcessHandle(Generic[StateT]):
    """A client's methods on one process, without their first two arguments.

    The client is a Client or an HttpClient. Errors are those of its methods; `timeout=None` means its own
    time-out (60 s by default).
    """

    def __init__(self, client: ProcessClient, namespace: Namespace[StateT] | str, process_id: str) -> None:
        self.client = client
        self._of = None if isinstance(namespace, str) else namespace
        self.namespace = check_namespace(getattr(namespace, "name", namespace))
        self.process_id = check_text("process_id", process_id)

    async def _ask(self, verb: str, given: Sequence[Any], options: Mapping[str, Any]) -> Any:
        ask: Callable[..., Coroutine[Any, Any, Any]] = getattr(self.client, verb)
        if not given or not callable(given[0]):
            return await ask(self.namespace, self.process_id, *given, **options)
        function, *args = given
        namespace = served_by(function, _SERVED[verb]).namespace
        if namespace != self.namespace:
            raise InvalidRequest(
                f"{function.__name__} serves namespace {namespace}, the process is of {self.namespace}",
                field="function",
            )
        return await ask(function, self.process_id, *args, **options)

    async def get(
        self,
        *,
        range: HistoryRange | None = HistoryRange(),  # noqa: A002, B008 - pinned name; frozen
        timeout: Timeout = None,
    ) -> Process[StateT]:
        """Do as `get` of the client; the state is of the type that the handle's namespace declares."""
        process = await self.client.get(self.namespace, self.process_id, range=range, timeout=timeout)
        return process if self._of is None else self._of.typed(process)

    def watch(self, *, after: str | None = None, state: bool = False) -> AsyncIterator[ProcessChange]:
        """Do as `watch` of the client."""
        return self.client.watch(self.namespace, self.process_id, after=after, state=state)

    @overload
    async def start(self, function: Async[A, R], args: A, /, **options: Unpack[StartOptions]) -> R: ...
    @overload
    async def start(self, function: AsyncAlone[R], /, **options: Unpack[StartOptions]) -> R: ...
    @overload
    async def start(self, function: Plain[A, R], args: A, /, **options: Unpack[StartOptions]) -> R: ...
    @overload
    async def start(self, function: PlainAlone[R], /, **options: Unpack[StartOptions]) -> R: ...
    @overload
    def start(self, function: Plain[Any, Any], /, **options: Unpack[StartOptions]) -> ArgumentsMissing: ...
    @overload
    async def start(self, function: AsyncAny[R], /, **options: Unpack[StartOptions]) -> R: ...
    @overload
    async def start(self, function: PlainAny[R], /, **options: Unpack[StartOptions]) -> R: ...
    @overload
    async def start(self, args: Any = None, **options: Unpack[StartOptions]) -> Any: ...
    @_shown_as(ProcessClient.start)
    def start(self, *given: Any, **options: Any) -> Any:
        return self._ask("start", given, options)

    @overload
    async def call(self, function: Async[A, R], args: A, /, **options: Unpack[CallOptions]) -> R: ...
    @overload
    async def call(self, function: AsyncAlone[R], /, **options: Unpack[CallOptions]) -> R: ...
    @overload
    async def call(self, function: Plain[A, R], args: A, /, **options: Unpack[CallOptions]) -> R: ...
    @overload
    async def call(self, function: PlainAlone[R], /, **options: Unpack[CallOptions]) -> R: ...
    @overload
    def call(self, function: Plain[Any, Any], /, **options: Unpack[CallOptions]) -> ArgumentsMissing: ...
    @overload
    async def call(self, function: AsyncAny[R], /, **options: Unpack[CallOptions]) -> R: ...
    @overload
    async def call(self, function: PlainAny[R], /, **options: Unpack[CallOptions]) -> R: ...
    @overload
    async def call(self, name: str, args: Any = None, **options: Unpack[CallOptions]) -> Any: ...
    @_shown_as(ProcessClient.call)
    def call(self, *given: Any, **options: Any) -> Any:
        return self._ask("call", given, options)

    @overload
    async def notify(self, function: Plain[A, Any], args: A, /, **options: Unpack[CallOptions]) -> None: ...
    @overload
    async def notify(self, function: PlainAlone[Any], /, **options: Unpack[CallOptions]) -> None: ...
    @overload
    def notify(self, function: Plain[Any, Any], /, **options: Unpack[CallOptions]) -> ArgumentsMissing: ...
    @overload
    async def notify(self, function: PlainAny[Any], /, **options: Unpack[CallOptions]) -> None: ...
    @overload
    async def notify(self, name: str, args: Any = None, **options: Unpack[CallOptions]) -> None: ...
    @_shown_as(ProcessClient.notify)
    def notify(self, *given: Any, **options: Any) -> Any:
        return self._ask("notify", given, options)

    @overload
    async def repair(self, function: Async[A, R], args: A, /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(self, function: AsyncAlone[R], /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(self, function: Plain[A, R], args: A, /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(self, function: PlainAlone[R], /, **options: Unpack[Options]) -> R: ...
    @overload
    def repair(self, function: Plain[Any, Any], /, **options: Unpack[Options]) -> ArgumentsMissing: ...
    @overload
    async def repair(self, function: AsyncAny[R], /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(self, function: PlainAny[R], /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(self, args: Any = None, **options: Unpack[Options]) -> Any: ...
    @_shown_as(ProcessClient.repair)
    def repair(self, *given: Any, **options: Any) -> Any:
        return self._ask("repair", given, options)

    submit_start = _on(ProcessClient.submit_start)
    submit_call = _on(ProcessClient.submit_call)
    submit_notify = _on(ProcessClient.submit_notify)
    submit_repair = _on(ProcessClient.submit_repair)
    submit_simple_repair = _on(ProcessClient.submit_simple_repair)
    submit_dry_run_repair = _on(ProcessClient.submit_dry_run_repair)
    result = _on(ProcessClient.result)
    simple_repair = _on(ProcessClient.simple_repair)
    dry_run_repair = _on(ProcessClient.dry_run_repair)
    redo = _on(ProcessClient.redo)
    submit_redo = _on(ProcessClient.submit_redo)
    set_timer = _on(ProcessClient.set_timer)
    unset_timer = _on(ProcessClient.unset_timer)
    fire_timer = _on(ProcessClient.fire_timer)
    put = _on(ProcessClient.put)
    trace = _on(ProcessClient.trace)
    mailbox = _on(ProcessClient.mailbox)
    remove = _on(ProcessClient.remove)
