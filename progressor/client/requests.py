"""The requests of a client: start, call, notify and repair, by a decorated function or by names.

Rule: no second implementation. A client over PostgreSQL and one over HTTP differ in their dispatcher alone,
and a function is nothing but an address and the type of its answer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict, Unpack, overload

from progressor.client.asks import Asks, RequestOptions, Timeout
from progressor.client.results import Read
from progressor.errors import InvalidRequest
from progressor.handlers.dry_run import DryRun, read_dry_run
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
from progressor.inputs import DRY_RUN
from progressor.model import Metadata, TaskType

SIMPLE_REPAIR = "simple_repair"
"""The name of repairs that run no handler."""


class Options(TypedDict, total=False):
    """The keywords of a request."""

    idempotency_key: str | None
    context: Any
    timeout: Timeout


class StartOptions(Options, total=False):
    """The keywords of a start."""

    metadata: Metadata | None
    priority: int


class CallOptions(Options, total=False):
    """The keywords of a call or notify."""

    expires: timedelta | None
    priority: int


class Requesting:
    """The methods of a client that send requests to processes.

    A request is addressed by names, or by the decorated function that serves it: `call(pay, "acme",
    Pay(amount=3))`. Type checkers then know its arguments, and the answer has the type that the function
    declares; InvalidAnswer if it does not fit that.

    `timeout` is a timedelta or seconds; None means `reply_timeout` of a Client, `timeout` of an HttpClient
    (both 60 s by default). Every method raises InvalidRequest for bad input and NamespaceNotFound.

    A method that sends a request raises IdempotencyConflict if its key was used for another request, and
    StorageUnavailable if it is not known to be accepted in time: repeat it with the same key. A method that
    waits for an answer raises ReplyTimeout after `timeout`, or if the client is closed (the task goes on),
    Rejected if the handler refused the request and HandlerFailed if it failed, InvalidRequest if the
    handler takes no such arguments, ProcessNotFound if the process was removed meanwhile, RequestLost if a
    fail-over or a restore lost the request, and CallCycle if a handler would wait for itself.
    """

    _dispatcher: Asks

    @overload
    async def start(
        self, function: Async[A, R], process_id: str, args: A, /, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def start(
        self, function: AsyncAlone[R], process_id: str, /, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def start(
        self, function: Plain[A, R], process_id: str, args: A, /, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def start(
        self, function: PlainAlone[R], process_id: str, /, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    def start(
        self, function: Plain[Any, Any], process_id: str, /, **options: Unpack[StartOptions]
    ) -> ArgumentsMissing: ...
    @overload
    async def start(
        self, function: AsyncAny[R], process_id: str, /, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def start(
        self, function: PlainAny[R], process_id: str, /, **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def start(
        self, namespace: str, process_id: str, args: Any = None, **options: Unpack[StartOptions]
    ) -> Any: ...
    async def start(  # type: ignore[misc] # ArgumentsMissing cannot be awaited
        self,
        namespace: Any,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        metadata: Metadata | None = None,
        priority: int = 0,
        timeout: Timeout = None,
    ) -> Any:
        """Create a process, run its init, and return the init handler's answer.

        Raise ProcessAlreadyExists if the id is taken, Rejected, HandlerFailed (the process is broken then),
        and ReplyTimeout; further errors as of `call`.
        """
        namespace, read = address_of(namespace, TaskType.INIT)
        options = RequestOptions(idempotency_key, context, metadata=metadata, priority=priority)
        request = self._dispatcher.make(TaskType.INIT, namespace, process_id, args, options)
        return await self._dispatcher.ask(request, timeout, read)

    @overload
    async def call(
        self, function: Async[A, R], process_id: str, args: A, /, **options: Unpack[CallOptions]
    ) -> R: ...
    @overload
    async def call(
        self, function: AsyncAlone[R], process_id: str, /, **options: Unpack[CallOptions]
    ) -> R: ...
    @overload
    async def call(
        self, function: Plain[A, R], process_id: str, args: A, /, **options: Unpack[CallOptions]
    ) -> R: ...
    @overload
    async def call(
        self, function: PlainAlone[R], process_id: str, /, **options: Unpack[CallOptions]
    ) -> R: ...
    @overload
    def call(
        self, function: Plain[Any, Any], process_id: str, /, **options: Unpack[CallOptions]
    ) -> ArgumentsMissing: ...
    @overload
    async def call(
        self, function: AsyncAny[R], process_id: str, /, **options: Unpack[CallOptions]
    ) -> R: ...
    @overload
    async def call(
        self, function: PlainAny[R], process_id: str, /, **options: Unpack[CallOptions]
    ) -> R: ...
    @overload
    async def call(
        self, namespace: str, process_id: str, name: str, args: Any = None, **options: Unpack[CallOptions]
    ) -> Any: ...
    async def call(  # type: ignore[misc] # ArgumentsMissing cannot be awaited
        self,
        namespace: Any,
        process_id: str,
        name: Any = None,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        expires: timedelta | None = None,
        priority: int = 0,
        timeout: Timeout = None,
    ) -> Any:
        """Run a call on a process, after those accepted before it, and return the handler's answer.

        It takes a decorated function, a process id and the arguments; or namespace, process id, name and
        arguments.

        If it has not begun `expires` after its acceptance, it is refused. Raise Expired for that,
        ProcessNotFound, ProcessBroken if the process is broken or breaks before the call runs, Rejected,
        HandlerFailed, ReplyTimeout after `timeout` (the call still runs), CallCycle if a handler would wait
        for itself, IdempotencyConflict, RequestLost, InvalidRequest, NamespaceNotFound, and
        StorageUnavailable.
        """
        namespace, name, args, read = call_of(namespace, name, args)
        options = RequestOptions(idempotency_key, context, expires=expires, priority=priority)
        request = self._dispatcher.make(TaskType.CALL, namespace, process_id, args, options, name)
        return await self._dispatcher.ask(request, timeout, read)

    @overload
    async def notify(
        self, function: Plain[A, Any], process_id: str, args: A, /, **options: Unpack[CallOptions]
    ) -> None: ...
    @overload
    async def notify(
        self, function: PlainAlone[Any], process_id: str, /, **options: Unpack[CallOptions]
    ) -> None: ...
    @overload
    def notify(
        self, function: Plain[Any, Any], process_id: str, /, **options: Unpack[CallOptions]
    ) -> ArgumentsMissing: ...
    @overload
    async def notify(
        self, function: PlainAny[Any], process_id: str, /, **options: Unpack[CallOptions]
    ) -> None: ...
    @overload
    async def notify(
        self, namespace: str, process_id: str, name: str, args: Any = None, **options: Unpack[CallOptions]
    ) -> None: ...
    async def notify(  # type: ignore[misc] # ArgumentsMissing cannot be awaited
        self,
        namespace: Any,
        process_id: str,
        name: Any = None,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        expires: timedelta | None = None,
        priority: int = 0,
        timeout: Timeout = None,
    ) -> None:
        """Put a call into the mailbox and return once it is accepted.

        `timeout` bounds that alone. Not begun `expires` later, it is refused, as its trace shows. Raise
        ProcessNotFound, ProcessBroken, IdempotencyConflict, and StorageUnavailable if the call is not
        accepted in time.
        """
        namespace, name, args, _ = call_of(namespace, name, args)
        options = RequestOptions(idempotency_key, context, expires=expires, priority=priority)
        request = self._dispatcher.make(TaskType.NOTIFY, namespace, process_id, args, options, name)
        await self._dispatcher.submit(request, timeout)

    @overload
    async def repair(
        self, function: Async[A, R], process_id: str, args: A, /, **options: Unpack[Options]
    ) -> R: ...
    @overload
    async def repair(
        self, function: AsyncAlone[R], process_id: str, /, **options: Unpack[Options]
    ) -> R: ...
    @overload
    async def repair(
        self, function: Plain[A, R], process_id: str, args: A, /, **options: Unpack[Options]
    ) -> R: ...
    @overload
    async def repair(
        self, function: PlainAlone[R], process_id: str, /, **options: Unpack[Options]
    ) -> R: ...
    @overload
    def repair(
        self, function: Plain[Any, Any], process_id: str, /, **options: Unpack[Options]
    ) -> ArgumentsMissing: ...
    @overload
    async def repair(self, function: AsyncAny[R], process_id: str, /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(self, function: PlainAny[R], process_id: str, /, **options: Unpack[Options]) -> R: ...
    @overload
    async def repair(
        self, namespace: str, process_id: str, args: Any = None, **options: Unpack[Options]
    ) -> Any: ...
    async def repair(  # type: ignore[misc] # ArgumentsMissing cannot be awaited
        self,
        namespace: Any,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Any:
        """Run the repair handler of a broken process, and return its answer.

        Raise ProcessNotFound, ProcessNotBroken, RepairConflict if the process takes no repair just now,
        Rejected, HandlerFailed, and ReplyTimeout; further errors as of `call`.
        """
        namespace, read = address_of(namespace, TaskType.REPAIR)
        options = RequestOptions(idempotency_key, context)
        request = self._dispatcher.make(TaskType.REPAIR, namespace, process_id, args, options)
        return await self._dispatcher.ask(request, timeout, read)

    async def simple_repair(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> None:
        """Put a broken process back to running; its timer comes back, at once if its time is over.

        If its init broke it, the process is back in init, and the init runs anew. `timeout` bounds the
        acceptance alone. Raise ProcessNotFound, ProcessNotBroken, RepairConflict if the process takes no
        repair just now, IdempotencyConflict, and StorageUnavailable if it is not accepted in time.
        """
        options = RequestOptions(idempotency_key, context)
        request = self._dispatcher.make(
            TaskType.REPAIR, namespace, process_id, None, options, SIMPLE_REPAIR
        )
        await self._dispatcher.submit(request, timeout)

    async def dry_run_repair(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> DryRun:
        """Show what `repair` would do: run the handler of a broken process, and save nothing of its step.

        The process stays as it is, and what the handler does with its `connection` is rolled back. The
        handler says by `dry_run=True` that it does nothing outside then; InvalidRequest if it does not, or
        if an older worker met it. Further errors as of `repair`.
        """
        options = RequestOptions(idempotency_key, context)
        request = self._dispatcher.make(TaskType.REPAIR, namespace, process_id, args, options, DRY_RUN)
        run: DryRun = await self._dispatcher.ask(request, timeout, read_dry_run)
        return run

    async def redo(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        *,
        fingerprint: str | None = None,
        timeout: Timeout = None,
    ) -> Any:
        """Run an ended call or notify again, with the same arguments, and answer as it is answered.

        It may have failed, been refused, been cancelled, or finished. It is run again once: a repeated redo
        returns the same answer. `task_id` and `fingerprint` are those of the trace and of a receipt. Raise
        TaskNotFound if the process has no such task in its present life, TaskNotEnded if it waits or runs,
        InvalidRequest if it is neither a call nor a notify, RequestLost if the task of this number has
        another fingerprint, ProcessNotFound, ProcessBroken (repair it first); further errors as of `call`.
        """
        request = await self._dispatcher.redo_of(namespace, process_id, task_id, timeout, fingerprint)
        if request.task_type is TaskType.NOTIFY:
            await self._dispatcher.submit(request, timeout)
            return None
        return await self._dispatcher.ask(request, timeout)


def address_of(given: Any, task_type: TaskType) -> tuple[str, Read | None]:
    """Return the namespace of a request; and the reader of its answer, if a function was given."""
    if not callable(given):
        return given, None
    served = served_by(given, task_type)
    return served.namespace, served.read_answer


def call_of(given: Any, name: Any, args: Any) -> tuple[str, str, Any, Read | None]:
    """Return namespace, name and arguments of a call, and the reader of its answer.

    Given are these names, or a function and, in place of the name, its arguments.
    """
    if not callable(given):
        return given, name, args, None
    if args is not None:
        raise InvalidRequest("give the arguments of a function behind the process_id", field="args")
    served = served_by(given, TaskType.CALL)
    return served.namespace, served.name or "", name, served.read_answer
