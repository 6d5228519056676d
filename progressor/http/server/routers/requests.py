"""The routes to start, call, notify and repair: a request is accepted, waited for as preferred, answered.

Rule: an accepted request is never answered with a time-out. It gets its answer, or the address of its task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, NamedTuple, TypeVar

from fastapi import Query, Request
from starlette.responses import Response

from progressor.client.results import Published, Receipt
from progressor.errors import InvalidRequest, ProgressorError, ReplyTimeout
from progressor.http.server import bodies, request_body, request_headers
from progressor.http.server.auth.scopes import Caller, require_scope
from progressor.http.server.bodies import AcceptedBody
from progressor.http.server.correlation import facts_of
from progressor.http.server.openapi.operations import (
    ANSWER,
    ANY_TIME,
    OF_ACCEPTED,
    STARTS,
    TAKES_ARGS,
    WITH_BODY,
    answers,
)
from progressor.http.server.routing import (
    CallName,
    NamespaceName,
    ProcessId,
    RouteContext,
    TheServer,
    router,
)
from progressor.http.wire import headers
from progressor.http.wire.paths import segment_of
from progressor.model import MAX_ID_LENGTH, TaskType

routes = router()

T = TypeVar("T")

_PROCESS = "/v1/namespaces/{namespace}/processes/{process_id}"
_ANSWER = "The handler's answer, null for none."
_ACCEPTED = "Accepted; no answer yet. Location is its task's address."
_PROBLEMS = (*ANY_TIME, *WITH_BODY, 404, 409)
_RETRY_AFTER = "1"
# Seconds; enough for one look at a task.
_AT_ONCE = 0.001


class ProcessRequest:
    """A request of HTTP to a process: its headers, its arguments, and its answer."""

    def __init__(
        self, request: Request, server: RouteContext, published: Published, namespace: str, process_id: str
    ) -> None:
        self._request = request
        self._server = server
        self._published = published
        self._namespace = namespace
        self._process_id = process_id
        self._preferences = request_headers.preferences_of(request.headers)
        self.idempotency_key = request_headers.idempotency_key_of(request.headers)
        self.context = request_headers.json_of(request.headers, headers.CONTEXT, "context")

    @classmethod
    async def read(
        cls,
        request: Request,
        server: RouteContext,
        namespace: str,
        process_id: str,
        *,
        answers_json: bool = False,
    ) -> ProcessRequest:
        """Read the headers of a request; raise Refusal if the caller does not accept its answer's type.

        Raise NamespaceNotFound if the namespace is not known.
        """
        published = await server.publications.of(namespace)
        bodies.require_acceptable(request, headers.JSON if answers_json else bodies.answer_type(published))
        return cls(request, server, published, namespace, process_id)

    @property
    def published(self) -> Published:
        """Return what the namespace's workers have published, at most some seconds old."""
        return self._published

    def require_key(self) -> None:
        """Raise InvalidRequest if there is no key and the server requires one."""
        if self.idempotency_key is None and self._server.options.require_idempotency_key:
            raise InvalidRequest(
                f"the header {headers.IDEMPOTENCY_KEY} is missing, which this server requires",
                field="idempotency_key",
            )

    async def args(self, task_type: TaskType, name: str | None = None) -> bytes | None:
        """Return the arguments in the body; raise Refusal if the published schema does not take them."""
        if name is not None and self._may_have(name):
            facts_of(self._request.scope)["call"] = name
        body = await request_body.read_body(self._request, self._server.options)
        args = request_body.args_of(self._request, body, raw=self._published.is_raw)
        await self._server.publications.check(self._namespace, task_type, name, args.value)
        return args.data

    def _may_have(self, name: str) -> bool:
        """Return whether the namespace may have a call of this name; a raw one publishes none."""
        calls = self._published.schemas.get("calls") or {}
        return name in calls or (self._published.is_raw and len(name) <= MAX_ID_LENGTH)

    def accepted(self, receipt: Receipt) -> Receipt:
        """Return the receipt, and have the log name its task."""
        facts_of(self._request.scope)["task_id"] = receipt.task_id
        return receipt

    async def answered(self, submitted: Awaitable[Receipt], *, created: bool = False) -> Response:
        """Return the answer of a submitted request, or 202 with the address to ask for it."""
        receipt = self.accepted(await submitted)
        # Its arguments are stored, so it needs no memory for them while it waits.
        self._request.state.place.keep(0)
        said = _of_receipt(receipt)
        client, preferences = self._server.client, self._preferences
        try:
            value = await waited(
                self._request,
                self._server,
                preferences,
                lambda seconds: client.answer(receipt, timeout=seconds),
                said,
            )
        except (ReplyTimeout, TimeoutError) as error:
            return still_under_way(PendingTask.of(receipt, self._published, error), said)
        except ProgressorError as error:
            # The request was accepted: the problem has the headers of its key and its task, too.
            self._request.state.said = said
            raise error from None
        is_new = created and not receipt.replayed
        if is_new:
            said["Location"] = process_url(receipt.namespace, receipt.process_id)
        return bodies.answer(value, HTTPStatus.CREATED if is_new else HTTPStatus.OK, said)


async def waited(
    request: Request,
    server: RouteContext,
    preferences: request_headers.Preferences,
    answer: Callable[[float], Awaitable[T]],
    said: dict[str, str],
    *,
    default: float | None = None,
) -> T:
    """Wait for an answer within the preferred time and the server's drain, and return it.

    The applied preference is added to the headers `said`. `default` is in seconds, for a request without
    one. Raise ReplyTimeout or TimeoutError if there is no answer by then.
    """
    options = server.options
    seconds = min(options.wait if default is None else default, options.longest_wait)
    if preferences.wait is not None:
        seconds = min(float(preferences.wait), options.longest_wait)
    if preferences.respond_async:
        seconds = 0.0
    applied = preferences.applied(options.longest_wait)
    if applied is not None:
        said["Preference-Applied"] = applied
    async with server.waits.waiting(request.receive):
        return await answer(max(seconds, _AT_ONCE))


def _of_receipt(receipt: Receipt) -> dict[str, str]:
    said = {
        headers.IDEMPOTENCY_KEY: headers.shown_key(receipt.idempotency_key),
        headers.TASK: task_url(receipt),
    }
    if receipt.replayed:
        said[headers.REPLAYED] = "true"
    return said


class PendingTask(NamedTuple):
    """A task without an answer, as AcceptedBody has it."""

    namespace: str
    process_id: str
    task_id: int
    fingerprint: str | None
    idempotency_key: str | None
    paused: bool
    served: bool | None = None
    requests_before: int | None = None

    @classmethod
    def of(cls, receipt: Receipt, published: Published, error: Exception | None = None) -> PendingTask:
        """Return the pending task of a receipt, with what the error that ended a wait for it knows."""
        waiting = cls(
            receipt.namespace,
            receipt.process_id,
            receipt.task_id,
            receipt.fingerprint,
            receipt.idempotency_key,
            published.paused,
        )
        return waiting.seen(error)

    def seen(self, error: Exception | None) -> PendingTask:
        """Return the same with what was found out when a wait for it ended."""
        if not isinstance(error, ReplyTimeout):
            return self
        return self._replace(
            paused=error.paused, served=error.served, requests_before=error.requests_before
        )


def still_under_way(task: PendingTask, said: dict[str, str]) -> Response:
    """Return 202: this task has no answer yet, and can be asked for it."""
    said["Location"] = task_url(task)
    said["Retry-After"] = _RETRY_AFTER
    return bodies.shown(task._asdict(), HTTPStatus.ACCEPTED, said)


def process_url(namespace: str, process_id: str) -> str:
    """Return the path of a process, from the root of the API."""
    return f"/v1/namespaces/{namespace}/processes/{segment_of(process_id)}"


def task_url(task: Receipt | PendingTask) -> str:
    """Return the path of a task's answer; its fingerprint excludes another task of the same number."""
    bare = f"{process_url(task.namespace, task.process_id)}/tasks/{task.task_id}"
    return bare if task.fingerprint is None else f"{bare}?fingerprint={task.fingerprint}"


@routes.post(
    _PROCESS,
    operation_id="start",
    summary="Create a process and run its init",
    status_code=201,
    response_model=None,
    openapi_extra=STARTS,
    responses=answers(
        {
            201: (_ANSWER, ANSWER),
            200: ("The answer of the start that this one repeats.", ANSWER),
            202: (_ACCEPTED, AcceptedBody),
        },
        _PROBLEMS,
        said=OF_ACCEPTED,
    ),
)
async def start(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("processes:start")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Take the init handler's arguments as the body, and metadata as JSON in `Progressor-Metadata`."""
    asked = await ProcessRequest.read(request, server, namespace, process_id)
    metadata = request_headers.json_of(request.headers, headers.METADATA, "metadata")
    submitted = server.client.submit_start(
        namespace,
        process_id,
        await asked.args(TaskType.INIT),
        idempotency_key=asked.idempotency_key,
        context=asked.context,
        metadata=metadata,
    )
    return await asked.answered(submitted, created=True)


@routes.post(
    _PROCESS + "/calls/{name}",
    operation_id="call",
    summary="Run a call on a process",
    response_model=None,
    openapi_extra=TAKES_ARGS,
    responses=answers(
        {200: (_ANSWER, ANSWER), 202: (_ACCEPTED, AcceptedBody)}, _PROBLEMS, said=OF_ACCEPTED
    ),
)
async def call(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    name: CallName,
    caller: Annotated[Caller, require_scope("processes:call")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Take the call's arguments as the body, and run it after those that were accepted before it."""
    asked = await ProcessRequest.read(request, server, namespace, process_id)
    asked.require_key()
    submitted = server.client.submit_call(
        namespace,
        process_id,
        name,
        await asked.args(TaskType.CALL, name),
        idempotency_key=asked.idempotency_key,
        context=asked.context,
    )
    return await asked.answered(submitted)


@routes.post(
    _PROCESS + "/notices/{name}",
    operation_id="notify",
    summary="Put a call into the mailbox of a process",
    status_code=202,
    response_model=None,
    openapi_extra=TAKES_ARGS,
    responses=answers({202: (_ACCEPTED, AcceptedBody)}, _PROBLEMS, said=OF_ACCEPTED),
)
async def notify(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    name: CallName,
    caller: Annotated[Caller, require_scope("processes:call")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Take the call's arguments as the body. Answer once it is accepted, without what it returns."""
    asked = await ProcessRequest.read(request, server, namespace, process_id, answers_json=True)
    asked.require_key()
    args = await asked.args(TaskType.NOTIFY, name)
    receipt = asked.accepted(
        await server.client.submit_notify(
            namespace, process_id, name, args, idempotency_key=asked.idempotency_key, context=asked.context
        )
    )
    return still_under_way(PendingTask.of(receipt, asked.published), _of_receipt(receipt))


@routes.post(
    _PROCESS + "/repairs",
    operation_id="repair",
    summary="Repair a broken process",
    response_model=None,
    openapi_extra=TAKES_ARGS,
    responses=answers(
        {200: (_ANSWER, ANSWER), 202: (_ACCEPTED, AcceptedBody)}, _PROBLEMS, said=OF_ACCEPTED
    ),
)
async def repair(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("processes:repair")],  # noqa: ARG001 - that it is admitted is enough
    simple: Annotated[bool, Query(description="Without a handler: put it back to running.")] = False,
) -> Response:
    """Take the repair handler's arguments as the body; a simple repair takes none."""
    asked = await ProcessRequest.read(request, server, namespace, process_id)
    asked.require_key()
    if not simple:
        submitted = server.client.submit_repair(
            namespace,
            process_id,
            await asked.args(TaskType.REPAIR),
            idempotency_key=asked.idempotency_key,
            context=asked.context,
        )
        return await asked.answered(submitted)
    if (await request_body.read_body(request, server.options)).strip() not in (b"", b"null"):
        raise InvalidRequest("a simple repair takes no arguments: send no body", field="args")
    receipt = asked.accepted(
        await server.client.submit_simple_repair(
            namespace, process_id, idempotency_key=asked.idempotency_key, context=asked.context
        )
    )
    return bodies.answer(None, headers=_of_receipt(receipt))
