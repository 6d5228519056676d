"""The dispatcher of HttpClient: it has requests accepted and answered over HTTP, as that of a Client.

Rule: a request is repeated under one idempotency key for as long as there is patience; once it is accepted,
its answer is asked for by its task.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from progressor.client.asks import RequestOptions, Timeout
from progressor.client.dispatch.request import request_of
from progressor.client.requests import SIMPLE_REPAIR
from progressor.client.results import Read, Receipt
from progressor.errors import InvalidRequest, ReplyTimeout
from progressor.handlers.codec import encode_json, json_object
from progressor.http.client.decode import NotAllowed, task_of, value_of
from progressor.http.client.exchange import Answer
from progressor.http.client.retry import RetryBudget
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers, paths
from progressor.http.wire.paths import segment_of
from progressor.inputs import (
    DEFAULT_TIMER,
    DRY_RUN,
    FIRE_TIMER,
    LAST_ID,
    SET_TIMER,
    UNSET_TIMER,
    check_count,
    check_namespace,
    check_text,
    given_key,
    redo_key,
)
from progressor.model import Metadata, TaskType
from progressor.storage import Request

# The calls that every namespace has have addresses of their own: the method, and the end of the path.
_REPAIRS = {SIMPLE_REPAIR: "?simple=true", DRY_RUN: "?dry_run=true"}
_TIMERS = {SET_TIMER: ("PATCH", ""), UNSET_TIMER: ("DELETE", ""), FIRE_TIMER: ("POST", "/fire")}


class SentRequest(NamedTuple):
    """A request as it is sent."""

    namespace: str
    process_id: str
    idempotency_key: str
    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    # None if the server alone knows it.
    task_type: TaskType | None = None


class HttpDispatcher:
    """The dispatcher of one HttpClient."""

    def __init__(self, line: RetryingTransport) -> None:
        self._line = line

    def make(
        self,
        task_type: TaskType,
        namespace: str,
        process_id: str,
        args: Any,
        options: RequestOptions,
        name: str | None = None,
    ) -> SentRequest:
        """Return a checked request; raise InvalidRequest, which names what is wrong."""
        timer = ""
        if task_type is TaskType.CALL and name in _TIMERS and isinstance(args, dict):
            timer = str(args.get("timer", ""))
            # The address names it.
            args = {member: value for member, value in args.items() if member != "timer"} or None
        request = request_of(task_type, namespace, process_id, args, options, name)
        said = {headers.IDEMPOTENCY_KEY: headers.shown_key(request.idempotency_key)}
        if request.context is not None:
            said[headers.CONTEXT] = in_ascii(request.context, "context")
        if request.process_metadata is not None:
            said[headers.METADATA] = in_ascii(encode_json(request.process_metadata), "metadata")
        if request.args is not None:
            said["Content-Type"] = headers.BYTES if isinstance(args, bytes) else headers.JSON
        method, path = _place(task_type, name, timer)
        url = process_url(namespace, process_id) + path + _query_of(request)
        return SentRequest(
            namespace,
            process_id,
            request.idempotency_key,
            method,
            url,
            said,
            content=request.args,
            task_type=task_type,
        )

    async def ask(self, request: SentRequest, timeout: Timeout, read: Read | None = None) -> Any:
        """Have a request accepted, wait for its answer, and return it or raise its error."""
        patience = self._line.patience(timeout)
        answer = await self._line.send(
            request.method,
            request.url,
            patience,
            waits=True,
            content=request.content,
            headers=request.headers,
        )
        return await self._answered(answer, request.namespace, request.process_id, patience, read)

    async def submit(self, request: SentRequest, timeout: Timeout) -> Receipt:
        """Have a request accepted, and return its receipt."""
        answer = await self._line.send(
            request.method,
            request.url,
            self._line.patience(timeout),
            content=request.content,
            headers={**request.headers, "Prefer": "respond-async"},
        )
        task_id, fingerprint = task_of(answer)
        return Receipt(
            request.namespace,
            request.process_id,
            task_id,
            request.idempotency_key,
            headers.REPLAYED in answer.headers,
            fingerprint=fingerprint,
        )

    async def answer(self, receipt: Receipt, timeout: Timeout) -> Any:
        """Wait for the answer of a submitted request, and return it or raise its error."""
        return await self.result(
            receipt.namespace, receipt.process_id, receipt.task_id, timeout, fingerprint=receipt.fingerprint
        )

    async def redo_of(
        self, namespace: str, process_id: str, task_id: int, timeout: Timeout, fingerprint: str | None
    ) -> SentRequest:
        """Return the request that runs an ended one again; the server answers for a notify at once."""
        self._line.patience(timeout)
        path, _, query = _task_url(namespace, process_id, task_id, fingerprint).partition("?")
        url = f"{path}/redo?{query}" if query else f"{path}/redo"
        return SentRequest(namespace, process_id, redo_key(task_id), "POST", url, {}, None)

    async def result(
        self,
        namespace: str,
        process_id: str,
        task_id: int,
        timeout: Timeout,
        *,
        fingerprint: str | None = None,
    ) -> Any:
        """Wait for the answer of a task of this process, and return it or raise its error."""
        url = _task_url(namespace, process_id, task_id, fingerprint)
        patience = self._line.patience(timeout)
        answer = await self._line.send("GET", url, patience, waits=True)
        return await self._answered(answer, namespace, process_id, patience)

    async def _answered(
        self,
        answer: Answer,
        namespace: str,
        process_id: str,
        patience: RetryBudget,
        read: Read | None = None,
    ) -> Any:
        while answer.status_code == HTTPStatus.ACCEPTED:
            said = answer.json()
            late = ReplyTimeout(
                namespace,
                process_id,
                idempotency_key=given_key(said["idempotency_key"]),
                task_id=said["task_id"],
                paused=said["paused"],
                served=said.get("served") is not False,
                requests_before=said.get("requests_before") or 0,
            )
            if patience.is_over:
                raise late
            try:
                answer = await self._line.send("GET", answer.headers["Location"], patience, waits=True)
            except NotAllowed as error:
                # The token may not read the task, which goes on all the same; the cause names the scope.
                raise late from error
        return value_of(answer, read)


def _query_of(request: Request) -> str:
    """Return the query of a start, call or notify, with its `?`; empty if it has none."""
    seconds = None if request.expires is None else request.expires.total_seconds()
    given = {"expires": seconds, "priority": request.priority or None}
    stated = {name: value for name, value in given.items() if value is not None}
    return f"?{urlencode(stated)}" if stated else ""


def _task_url(namespace: str, process_id: str, task_id: int, fingerprint: str | None) -> str:
    check_count("task_id", task_id, least=1, most=LAST_ID)
    url = f"{process_url(namespace, process_id)}/tasks/{task_id}"
    if fingerprint is None:
        return url
    return f"{url}?fingerprint={quote(check_text('fingerprint', fingerprint), safe='')}"


def _place(task_type: TaskType, name: str | None, timer: str) -> tuple[str, str]:
    """Return the method of a request, and its path behind that of the process."""
    match task_type:
        case TaskType.INIT:
            return "POST", ""
        case TaskType.NOTIFY:
            return "POST", f"/notices/{segment_of(name or '')}"
        case TaskType.REPAIR:
            return "POST", f"/repairs{_REPAIRS.get(name or '', '')}"
        case _ if name in _TIMERS:
            method, end = _TIMERS[name]
            return method, f"/timers/{segment_of(timer or DEFAULT_TIMER)}{end}"
        case _:
            return "POST", f"/calls/{segment_of(name or '')}"


def process_url(namespace: str, process_id: str) -> str:
    """Return the path of a process; raise InvalidRequest if namespace or id break a rule."""
    return paths.process_url(check_namespace(namespace), check_text("process_id", process_id))


def metadata_in_query(metadata: Metadata | None) -> str | None:
    """Return a metadata filter as a query has it; raise InvalidRequest if it is no object."""
    if metadata is None:
        return None
    return in_ascii(encode_json(json_object(metadata, field="metadata")), "metadata")


def in_ascii(data: bytes, field: str) -> str:
    """Return JSON as a header can hold it, in ASCII; raise InvalidRequest if `data` is no text."""
    try:
        # Outside of ASCII, JSON escapes a character in UTF-16.
        return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in data.decode())
    except UnicodeDecodeError:
        raise InvalidRequest(f"{field} must be JSON, which alone a header can hold", field=field) from None
