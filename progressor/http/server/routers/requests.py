"""The routes to start, call, notify and repair: a request is accepted, waited for as preferred, answered.

Rule: an accepted request is never answered with a time-out. It gets its answer, or the address of its task.
"""

from __future__ import annotations

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from progressor.client.results import Published, Receipt
from progressor.errors import InvalidRequest, ReplyTimeout
from progressor.http.server import bodies, request_body, request_headers
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require
from progressor.http.server.openapi.operations import ANSWER, REDOES, STARTS, TAKES_ARGS
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import (
    CallName,
    Expires,
    Fingerprint,
    NamespaceName,
    Priority,
    ProcessId,
    TaskId,
    duration_of,
)
from progressor.http.wire import headers
from progressor.http.wire.models import AcceptedBody
from progressor.http.wire.paths import PROCESS, process_url
from progressor.inputs import MAX_ID_LENGTH
from progressor.model import TaskType
from progressor.rights import Scope
from progressor.spans.in_use import AwaitedCall

routes = Routes()

_ANSWER = ("The handler's answer, null for none.", ANSWER)
_ACCEPTED = ("Accepted; no answer yet. Location is its task's address.", AcceptedBody)
_RETRY_AFTER = "1"


class ProcessRequest:
    """A request of HTTP to a process: its headers, its arguments, and its answer."""

    def __init__(self, request: ApiRequest, namespace: str, published: Published) -> None:
        self._request = request
        self._namespace = namespace
        self.published = published
        # Parameters that each method of the client has which submits a request.
        self.stated: dict[str, Any] = {
            "idempotency_key": request_headers.idempotency_key_of(request.headers),
            "context": request_headers.json_of(request.headers, headers.CONTEXT, "context"),
        }

    @classmethod
    async def read(
        cls, request: ApiRequest, namespace: str, *, answers_json: bool = False
    ) -> ProcessRequest:
        """Read the headers of a request; raise Refusal if the caller does not accept its answer's type.

        Raise NamespaceNotFound if the namespace is not known.
        """
        published = await request.server.publications.of(namespace)
        request.require_acceptable(headers.JSON if answers_json else bodies.answer_type(published))
        return cls(request, namespace, published)

    def require_key(self) -> None:
        """Raise InvalidRequest if there is no key and the server requires one."""
        if self.stated["idempotency_key"] is None and self._request.server.options.require_idempotency_key:
            raise InvalidRequest(
                f"the header {headers.IDEMPOTENCY_KEY} is missing, which this server requires",
                field="idempotency_key",
            )

    async def args(self, task_type: TaskType, name: str | None = None) -> bytes | None:
        """Return the arguments in the body; raise Refusal if the published schema does not take them."""
        request = self._request
        if name is not None and self._may_have(name):
            request.facts["call"] = name
        body = await request_body.read_body(request)
        args = request_body.args_of(request, body, raw=self.published.is_raw)
        await request.server.publications.check(self._namespace, task_type, name, args.value)
        return args.data

    def _may_have(self, name: str) -> bool:
        """Return whether the namespace may have a call of this name; a raw one publishes none."""
        calls = self.published.schemas.get("calls") or {}
        return name in calls or (self.published.is_raw and len(name) <= MAX_ID_LENGTH)

    async def accepted(self, submitted: Awaitable[Receipt]) -> Receipt:
        """Return the receipt of a submitted request; the answer, the problem and the log name its task."""
        receipt = await submitted
        request = self._request
        request.facts["task_id"] = receipt.task_id
        request.answer_headers[headers.IDEMPOTENCY_KEY] = headers.shown_key(receipt.idempotency_key)
        request.answer_headers[headers.TASK] = task_url(receipt)
        if receipt.replayed:
            request.answer_headers[headers.REPLAYED] = "true"
        return receipt

    async def answered(self, submitted: Awaitable[Receipt], *, created: bool = False) -> Response:
        """Return the answer of a submitted request, or 202 with the address to ask for it.

        That of a notice is null. A caller that prefers not to wait gets 202 for a new request, however soon
        it is answered, and the stored answer, if there is one, for a repeated request.
        """
        request = self._request
        preferences = request_headers.preferences_of(request.headers)
        with AwaitedCall(request.seconds_to_wait(preferences)):
            receipt = await self.accepted(submitted)
            if receipt.task_type is TaskType.NOTIFY:
                return bodies.answer(None)
            # Its arguments are stored, so it needs no memory for them while it waits.
            request.place.keep(0)
            if preferences.respond_async and not receipt.replayed:
                request.apply(preferences)
                return still_under_way(request, receipt, self.published)
            client = request.server.client
            try:
                value = await request.waited(
                    lambda seconds: client.answer(receipt, timeout=seconds), preferences=preferences
                )
            except (ReplyTimeout, TimeoutError) as error:
                return still_under_way(request, receipt, self.published, error)
        if not created or receipt.replayed:
            return bodies.answer(value)
        request.answer_headers["Location"] = process_url(receipt.namespace, receipt.process_id)
        return bodies.answer(value, HTTPStatus.CREATED)


def still_under_way(
    request: ApiRequest, task: Receipt, published: Published, error: Exception | None = None
) -> Response:
    """Return 202: this task has no answer yet, and can be asked for it.

    The error that ended a wait for it may know why.
    """
    late = error if isinstance(error, ReplyTimeout) else None
    body = AcceptedBody(
        namespace=task.namespace,
        process_id=task.process_id,
        task_id=task.task_id,
        fingerprint=task.fingerprint,
        idempotency_key=task.idempotency_key,
        paused=published.paused if late is None else late.paused,
        served=None if late is None else late.served,
        requests_before=None if late is None else late.requests_before,
    )
    request.answer_headers |= {"Location": task_url(task), "Retry-After": _RETRY_AFTER}
    return bodies.shown(body, HTTPStatus.ACCEPTED)


def task_url(task: Receipt) -> str:
    """Return the path of a task's answer; its fingerprint excludes another task of the same number."""
    bare = f"{process_url(task.namespace, task.process_id)}/tasks/{task.task_id}"
    return bare if task.fingerprint is None else f"{bare}?fingerprint={task.fingerprint}"


@routes.add(
    "POST",
    PROCESS + "/calls/{name}",
    "Run a call on a process",
    scope=Scope.PROCESSES_CALL,
    takes=TAKES_ARGS,
    answers={200: _ANSWER, 202: _ACCEPTED},
    problems=(409,),
)
async def call(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    name: CallName,
    expires: Expires = None,
    priority: Priority = 0,
) -> Response:
    """Take the call's arguments as the body, and run it after those that were accepted before it."""
    asked = await ProcessRequest.read(request, namespace)
    asked.require_key()
    args = await asked.args(TaskType.CALL, name)
    how = {"expires": duration_of(expires), "priority": priority, **asked.stated}
    return await asked.answered(request.server.client.submit_call(namespace, process_id, name, args, **how))


@routes.add(
    "POST",
    PROCESS,
    "Create a process and run its init",
    scope=Scope.PROCESSES_START,
    takes=STARTS,
    answers={201: _ANSWER, 200: ("The answer of the start that this one repeats.", ANSWER), 202: _ACCEPTED},
    problems=(409,),
)
async def start(
    request: ApiRequest, namespace: NamespaceName, process_id: ProcessId, priority: Priority = 0
) -> Response:
    """Take the init handler's arguments as the body, and metadata as JSON in `Progressor-Metadata`."""
    asked = await ProcessRequest.read(request, namespace)
    metadata = request_headers.json_of(request.headers, headers.METADATA, "metadata")
    args = await asked.args(TaskType.INIT)
    return await asked.answered(
        request.server.client.submit_start(
            namespace, process_id, args, metadata=metadata, priority=priority, **asked.stated
        ),
        created=True,
    )


@routes.add(
    "POST",
    PROCESS + "/notices/{name}",
    "Put a call into the mailbox of a process",
    scope=Scope.PROCESSES_CALL,
    takes=TAKES_ARGS,
    answers={202: _ACCEPTED},
    problems=(409,),
)
async def notify(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    name: CallName,
    expires: Expires = None,
    priority: Priority = 0,
) -> Response:
    """Take the call's arguments as the body. Answer once it is accepted, without what it returns."""
    asked = await ProcessRequest.read(request, namespace, answers_json=True)
    asked.require_key()
    args = await asked.args(TaskType.NOTIFY, name)
    submitted = request.server.client.submit_notify(
        namespace, process_id, name, args, expires=duration_of(expires), priority=priority, **asked.stated
    )
    return still_under_way(request, await asked.accepted(submitted), asked.published)


@routes.add(
    "POST",
    PROCESS + "/repairs",
    "Repair a broken process",
    scope=Scope.PROCESSES_REPAIR,
    takes=TAKES_ARGS,
    answers={200: _ANSWER, 202: _ACCEPTED},
    problems=(409,),
)
async def repair(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    simple: Annotated[bool, Field(description="Without a handler: put it back to running.")] = False,
    dry_run: Annotated[bool, Field(description="Only show what the handler would do.")] = False,
) -> Response:
    """Take the repair handler's arguments as the body; a simple repair takes none.

    A dry run needs the scope `state:read` too. It answers with what the handler would do: its answer, the
    state and metadata after it, the events, timers and messages.
    """
    asked = await ProcessRequest.read(request, namespace)
    asked.require_key()
    client = request.server.client
    if dry_run:
        if simple:
            raise InvalidRequest("a simple repair runs no handler: it has no dry run", field="dry_run")
        require(request.caller, Scope.STATE_READ, namespace)
    if not simple:
        args = await asked.args(TaskType.REPAIR)
        submit = client.submit_dry_run_repair if dry_run else client.submit_repair
        return await asked.answered(submit(namespace, process_id, args, **asked.stated))
    if (await request_body.read_body(request)).strip() not in (b"", b"null"):
        raise InvalidRequest("a simple repair takes no arguments: send no body", field="args")
    await asked.accepted(client.submit_simple_repair(namespace, process_id, **asked.stated))
    return bodies.answer(None)


@routes.add(
    "POST",
    PROCESS + "/tasks/{task_id}/redo",
    "Run a call or notice that ended again",
    scope=Scope.PROCESSES_CALL,
    takes=REDOES,
    answers={200: _ANSWER, 202: _ACCEPTED},
    problems=(409, 422),
)
async def redo(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: ProcessId,
    task_id: TaskId,
    fingerprint: Fingerprint = None,
) -> Response:
    """Run it with the same arguments, once: a repetition answers as the first redo did.

    Answer as the call is answered; for a notice `null`, once it is accepted.
    """
    asked = await ProcessRequest.read(request, namespace)
    submitted = request.server.client.submit_redo(namespace, process_id, task_id, fingerprint=fingerprint)
    return await asked.answered(submitted)
