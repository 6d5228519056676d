"""The Client's methods over HTTP, for services that must not reach the database.

Rule: a request is repeated under one idempotency key for as long as there is patience, and what was
accepted is asked for by its task. Errors are those of the Client, with their attributes.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self

import httpx
from pydantic_core import to_json

from progressor.client.asking import Timeout
from progressor.client.results import Health, Page, Published, TraceEntry
from progressor.errors import InvalidRequest, ReplyTimeout, StorageUnavailable
from progressor.handlers.codec import encode, json_object
from progressor.handlers.process import Process
from progressor.http import headers
from progressor.http.answers import entry_of, error_of, health_of, process_of, value_of
from progressor.http.client_operating import HttpOperating
from progressor.http.client_timing import HttpTiming
from progressor.http.patience import Patience
from progressor.http.segments import segment_of
from progressor.inputs import check_namespace, check_text
from progressor.model import HistoryRange, Metadata, SetTimer, UnsetTimer

# Beyond what the server was asked to wait.
_TRANSPORT_SECONDS = 10.0
_PAGE = 1000
# Not now; what was asked is safe to repeat.
_NOT_NOW = frozenset({429, 502, 503, 504})


class HttpClient(HttpTiming, HttpOperating):
    """The processes of one API: `async with HttpClient("https://…", token="…") as client: …`.

    `timeout` is how long a request waits for its answer unless it says so itself; `transport` is httpx's.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float | timedelta = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._timeout = _seconds(timeout, 60.0)
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            timeout=_TRANSPORT_SECONDS,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; requests that were accepted go on."""
        await self._http.aclose()

    async def start(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        metadata: Metadata | None = None,
        timeout: Timeout = None,
    ) -> Any:
        """Create a process and run its init; the init handler's answer."""
        said = {}
        if metadata is not None:
            said[headers.METADATA] = _ascii(json_object(metadata, field="metadata"))
        return await self._ask(namespace, process_id, "", args, idempotency_key, context, timeout, said)

    async def call(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Any:
        """Run a call on a process, after those accepted before it; the handler's answer."""
        path = f"/calls/{segment_of(check_text('name', name))}"
        return await self._ask(namespace, process_id, path, args, idempotency_key, context, timeout)

    async def notify(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> None:
        """Put a call into the mailbox and return once it is accepted."""
        path = f"/notices/{segment_of(check_text('name', name))}"
        await self._ask(
            namespace, process_id, path, args, idempotency_key, context, timeout, is_answered=False
        )

    async def repair(
        self,
        namespace: str,
        process_id: str,
        args: Any = None,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> Any:
        """Run the repair handler of a broken process; its answer."""
        return await self._ask(namespace, process_id, "/repairs", args, idempotency_key, context, timeout)

    async def simple_repair(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        context: Any = None,
        timeout: Timeout = None,
    ) -> None:
        """Put a broken process back to running; its timer comes back, at once if its time is over."""
        path = "/repairs?simple=true"
        await self._ask(namespace, process_id, path, None, idempotency_key, context, timeout)

    async def _ask(
        self,
        namespace: str,
        process_id: str,
        path: str,
        args: Any,
        idempotency_key: str | None,
        context: Any,
        timeout: Timeout,
        said: Mapping[str, str] | None = None,
        *,
        is_answered: bool = True,
        method: str = "POST",
    ) -> Any:
        url = _process(namespace, process_id)
        if idempotency_key is None:
            idempotency_key = secrets.token_urlsafe(9)
        key = check_text("idempotency_key", idempotency_key)
        patience = Patience(_seconds(timeout, self._timeout))
        sent = {headers.IDEMPOTENCY_KEY: headers.shown_key(key), **(said or {})}
        if context is not None:
            sent[headers.CONTEXT] = _ascii(context)
        body = encode(args, field="args")
        if body is not None:
            sent["Content-Type"] = headers.BYTES if isinstance(args, bytes) else headers.JSON
        answer = await self._send(method, url + path, patience, content=body, headers=sent, waits=True)
        while is_answered and answer.status_code == httpx.codes.ACCEPTED:
            if patience.is_over:
                task_id = answer.json()["task_id"]
                raise ReplyTimeout(namespace, process_id, idempotency_key=key, task_id=task_id)
            answer = await self._send("GET", answer.headers["Location"], patience, waits=True)
        return value_of(answer)

    async def result(
        self, namespace: str, process_id: str, task_id: int, *, timeout: Timeout = None
    ) -> Any:
        """The answer of a task of this process, waited for, whoever asked for it."""
        url = f"{_process(namespace, process_id)}/tasks/{int(task_id)}"
        patience = Patience(_seconds(timeout, self._timeout))
        while True:
            answer = await self._send("GET", url, patience, waits=True)
            if answer.status_code != httpx.codes.ACCEPTED:
                return value_of(answer)
            if patience.is_over:
                key = answer.json()["idempotency_key"]
                raise ReplyTimeout(namespace, process_id, idempotency_key=key, task_id=task_id)

    async def get(
        self,
        namespace: str,
        process_id: str,
        *,
        range: HistoryRange | None = HistoryRange(),  # noqa: A002, B008 - the Client's name; frozen
        timeout: Timeout = None,
    ) -> Process[Any]:
        """A process with a range of its history (`range=None`: none); waits for a running init."""
        url = _process(namespace, process_id)
        patience = Patience(_seconds(timeout, self._timeout))
        facts = (await self._send("GET", url, patience, waits=True)).json()
        history = [] if range is None else await self._events(url, range, facts["last_event_id"], patience)
        return process_of(facts, history)

    async def _events(
        self, url: str, wanted: HistoryRange, last: int, patience: Patience
    ) -> list[Mapping[str, Any]]:
        """A range of a history as long as it was when the process was read."""
        offset, found = wanted.offset, list[Mapping[str, Any]]()
        if wanted.direction == "backward" and (offset == 0 or offset > last):
            offset = last + 1
        while wanted.limit is None or len(found) < wanted.limit:
            limit = _PAGE if wanted.limit is None else min(_PAGE, wanted.limit - len(found))
            params = {"after": offset, "limit": limit, "direction": wanted.direction}
            page = (await self._send("GET", f"{url}/events", patience, params=params)).json()
            found += [each for each in page["events"] if each["event_id"] <= last]
            if page["after"] is None or page["after"] >= last:
                break
            offset = page["after"]
        return found

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
        """Import a process as it is, with its history (dicts) and timer."""
        given: dict[str, Any] = {
            "state": state,
            "events": list(events),
            "metadata": metadata,
            "status": status,
        }
        if isinstance(action, SetTimer):
            after = None if action.after is None else action.after.total_seconds()
            given["timer"] = {"at": action.at, "after": after, "remove": action.remove}
        await self._send(
            "PUT",
            _process(namespace, process_id),
            Patience(0.0),
            content=to_json(given),
            headers={"Content-Type": headers.JSON},
        )

    async def trace(
        self,
        namespace: str,
        process_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
    ) -> list[TraceEntry]:
        """The tasks of a process in order, behind id `after`: the first `limit`, or all."""
        url, patience = f"{_process(namespace, process_id)}/trace", Patience(self._timeout)
        found: list[TraceEntry] = []
        following: int | None = after
        while following is not None and (limit is None or len(found) < limit):
            most = _PAGE if limit is None else min(_PAGE, limit - len(found))
            params = {"after": following, "limit": most}
            page = (await self._send("GET", url, patience, params=params)).json()
            found += [entry_of(each) for each in page["tasks"]]
            following = page["after"]
        return found

    async def search(
        self,
        *,
        namespace: str | None = None,
        status: str | None = None,
        metadata: Metadata | None = None,
        timer: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Processes by namespace, then creation, with their states."""
        asked: dict[str, Any] = {
            "namespace": namespace,
            "status": status,
            "metadata": None if metadata is None else _ascii(json_object(metadata, field="metadata")),
            "timer": timer,
            "created_after": None if created_after is None else created_after.isoformat(),
            "created_before": None if created_before is None else created_before.isoformat(),
            "limit": limit,
            "cursor": cursor,
            "state": True,
        }
        params = {name: value for name, value in asked.items() if value is not None}
        page = (await self._send("GET", "/v1/processes", Patience(self._timeout), params=params)).json()
        return Page([process_of(each, []) for each in page["processes"]], page["cursor"])

    async def remove(self, namespace: str, process_id: str) -> None:
        """Remove a process with all its rows now, whatever it does; its callers get ProcessNotFound."""
        await self._send("DELETE", _process(namespace, process_id), Patience(0.0))

    async def published(self, namespace: str) -> Published:
        """What the workers that serve a namespace have written of it: options and JSON schemas."""
        url = f"/v1/namespaces/{check_namespace(namespace)}"
        return Published(**(await self._send("GET", url, Patience(self._timeout))).json())

    async def health(self) -> Health:
        """Whether the API and its database answer, and who serves what."""
        try:
            return health_of(await self._http.get("/health"))
        except httpx.TransportError as error:
            return Health(False, f"the API does not answer ({type(error).__name__})", 0, ())

    async def _operate(self, method: str, url: str, **request: Any) -> httpx.Response:
        return await self._send(method, url, Patience(self._timeout), **request)

    async def _send(
        self, method: str, url: str, patience: Patience, *, waits: bool = False, **request: Any
    ) -> httpx.Response:
        """The answer; its error raised. What did not get through is sent again while there is patience."""
        while True:
            wait = patience.wait if waits else 0
            sent = dict(request)
            if waits:
                sent["headers"] = {**request.get("headers", {}), "Prefer": f"wait={wait}"}
            why: Exception
            try:
                answer = await self._http.request(method, url, timeout=wait + _TRANSPORT_SECONDS, **sent)
            except httpx.TransportError as error:
                why = StorageUnavailable(f"the API cannot be reached ({type(error).__name__})")
            else:
                if answer.is_success:
                    return answer
                why = error_of(answer)
                if answer.status_code not in _NOT_NOW:
                    raise why
            if not await patience.pause():
                raise why from None


def _process(namespace: str, process_id: str) -> str:
    check_namespace(namespace)
    return f"/v1/namespaces/{namespace}/processes/{segment_of(check_text('process_id', process_id))}"


def _seconds(timeout: Timeout, default: float) -> float:
    chosen = default if timeout is None else timeout
    seconds = chosen.total_seconds() if isinstance(chosen, timedelta) else chosen
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidRequest("timeout must be a timedelta or a number of seconds above 0", field="timeout")
    return float(seconds)


def _ascii(value: Any) -> str:
    """JSON as a header can hold it."""
    data = encode(value, field="context") or b"null"
    return "".join(c if c.isascii() else _escaped(c) for c in data.decode())


def _escaped(character: str) -> str:
    """As JSON escapes it: in UTF-16."""
    code = character.encode("utf-16-be")
    return "".join(f"\\u{code[i : i + 2].hex()}" for i in (0, 2) if i < len(code))
