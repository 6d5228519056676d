"""Handles of processes: a client's methods on one process, without their first two arguments."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from progressor.client.requests import Requesting, Timeout
from progressor.client.results import TraceEntry
from progressor.client.timers import Timing
from progressor.handlers.process import Process
from progressor.inputs import check_namespace, check_text
from progressor.model import HistoryRange, Metadata, SetTimer, UnsetTimer
from progressor.monitoring import Mailbox

P = ParamSpec("P")
T = TypeVar("T")


class ProcessClient(Requesting, Timing, ABC):
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
        action: SetTimer | UnsetTimer | None = None,
        metadata: Metadata | None = None,
        status: Literal["running", "error"] = "running",
    ) -> None:
        """Import a process as it is, with its history (dicts or models, numbered from 1) and timer.

        Raise ProcessAlreadyExists if the id is taken, and InvalidRequest for a value that cannot be put.
        """

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

    # Help and editors show the signature without the two arguments that the handle fills in.
    self, _, _, *rest = inspect.signature(method).parameters.values()
    on_this_process.__signature__ = inspect.Signature([self, *rest])  # type: ignore[attr-defined] # for inspect
    return on_this_process


class ProcessHandle:
    """A client's methods on one process, without their first two arguments.

    The client is a Client or an HttpClient. Errors are those of its methods; `timeout=None` means its own
    time-out (60 s by default).
    """

    def __init__(self, client: ProcessClient, namespace: str, process_id: str) -> None:
        self.client = client
        self.namespace = check_namespace(namespace)
        self.process_id = check_text("process_id", process_id)

    start = _on(ProcessClient.start)
    call = _on(ProcessClient.call)
    notify = _on(ProcessClient.notify)
    repair = _on(ProcessClient.repair)
    submit_start = _on(ProcessClient.submit_start)
    submit_call = _on(ProcessClient.submit_call)
    submit_notify = _on(ProcessClient.submit_notify)
    submit_repair = _on(ProcessClient.submit_repair)
    submit_simple_repair = _on(ProcessClient.submit_simple_repair)
    result = _on(ProcessClient.result)
    simple_repair = _on(ProcessClient.simple_repair)
    set_timer = _on(ProcessClient.set_timer)
    unset_timer = _on(ProcessClient.unset_timer)
    fire_timer = _on(ProcessClient.fire_timer)
    get = _on(ProcessClient.get)
    put = _on(ProcessClient.put)
    trace = _on(ProcessClient.trace)
    mailbox = _on(ProcessClient.mailbox)
    remove = _on(ProcessClient.remove)
