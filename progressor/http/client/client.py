"""The Client's methods over HTTP, for services that must not reach the database.

Rule: requests are made by the Client's own code, over another dispatcher. Errors are those of the Client,
with their attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

import httpx

from progressor.client.asks import Timeout
from progressor.client.handle import ProcessClient, ProcessHandle
from progressor.client.results import Health, Page, Published, TraceEntry
from progressor.client.transfers.put import check_import, event_parts, timers_of
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.handlers.codec import decode, encode_json
from progressor.handlers.process import Process, StateT
from progressor.http.client.admin import HttpOperating
from progressor.http.client.decode import entry_of, health_of, process_of
from progressor.http.client.requests import HttpDispatcher, metadata_in_query, process_url
from progressor.http.client.retry import RetryBudget
from progressor.http.client.streams import HttpStreams
from progressor.http.client.transfers import TransferMethods
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.http.wire.members import members_for
from progressor.inputs import LAST_ID, HistoryRange, check_count, check_namespace
from progressor.model import Metadata
from progressor.storage import MOST_ITEMS
from progressor.timers import TimerChange

if TYPE_CHECKING:
    from progressor.handlers.namespace import Namespace


class HttpClient(HttpOperating, HttpStreams, TransferMethods, ProcessClient):
    """The processes of one API: `async with HttpClient("https://…", token="…") as client: …`.

    `timeout` is a timedelta or seconds (60 s by default): how long a method tries, and waits for an answer.
    A method's `timeout=None` means that one. Until then a request is sent again; `put`, `remove`,
    `remove_processes` and `retire` are sent once. `transport` is httpx's.

    Errors are those of Client. InvalidRequest also means a bad `url`, or a token that does not hold or
    lacks a scope or a namespace. StorageUnavailable also means an API that cannot be reached or cannot
    answer now, or a closed client. No CallCycle is raised: a cycle over HTTP is not noticed.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float | timedelta = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._line = RetryingTransport(url, token=token, timeout=timeout, transport=transport)
        self._dispatcher = HttpDispatcher(self._line)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, for good; requests that were accepted go on."""
        await self._line.close()

    def process(self, namespace: Namespace[StateT] | str, process_id: str) -> ProcessHandle[StateT]:
        """Return a handle on one process, whose methods lack the first two arguments.

        With a Namespace in place of its name, `get` returns a state of the declared type.

        Raise InvalidRequest if these two break a rule; ask nothing of the API.
        """
        return ProcessHandle(self, namespace, process_id)

    async def get(
        self,
        namespace: str,
        process_id: str,
        *,
        range: HistoryRange | None = HistoryRange(),  # noqa: A002, B008 - the Client's name; frozen
        timeout: Timeout = None,
    ) -> Process[Any]:
        """Return a process with a range of its history (`range=None`: none); wait for a running init.

        Raise ProcessNotFound if there is none, and ReplyTimeout if its init takes longer than `timeout`.
        """
        url = process_url(namespace, process_id)
        if range is not None and not isinstance(range, HistoryRange):
            raise InvalidRequest("range must be a HistoryRange or None", field="range")
        patience = self._line.patience(timeout)
        facts = (await self._line.send("GET", url, patience, waits=True)).json()
        history = [] if range is None else await self._events(url, range, facts["last_event_id"], patience)
        return process_of(facts, history)

    async def _events(
        self, url: str, wanted: HistoryRange, last: int, patience: RetryBudget
    ) -> list[Mapping[str, Any]]:
        """Return a range of the history as it was when the process was read: up to the event `last`."""
        offset, found = wanted.offset, list[Mapping[str, Any]]()
        if wanted.direction == "backward" and (offset == 0 or offset > last):
            offset = last + 1
        while wanted.limit is None or len(found) < wanted.limit:
            limit = MOST_ITEMS if wanted.limit is None else min(MOST_ITEMS, wanted.limit - len(found))
            params = {"after": offset, "limit": limit, "direction": wanted.direction}
            page = (
                await self._line.send("GET", f"{url}/events", patience, waits=True, params=params)
            ).json()
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
        action: TimerChange | Sequence[TimerChange] | None = None,
        metadata: Metadata | None = None,
        status: Literal["running", "error"] = "running",
    ) -> None:
        """Import a process as it is, with its history (dicts or models, numbered from 1) and timers.

        It is sent once. Raise ProcessAlreadyExists if the id is taken, and InvalidRequest for a value that
        cannot be imported.
        """
        check_import(events, action, status)
        parts = [event_parts(each, f"events[{place}]") for place, each in enumerate(events)]
        has_bytes = any(isinstance(each, bytes) for each in (state, *(part[0] for part in parts)))
        # Bytes are raw in a raw namespace, and encoded JSON in any other.
        is_raw = has_bytes and (await self.published(namespace)).is_raw
        given: dict[str, Any] = {
            **_members("state", state, raw=is_raw),
            "events": [
                {**_members("payload", payload, raw=is_raw), "metadata": said, "timestamp": at}
                for payload, said, at in parts
            ],
            "metadata": metadata,
            "status": status,
        }
        for timer in timers_of(action):
            if timer.name:
                given.setdefault("timers", {})[timer.name] = timer.as_json()
            else:
                given["timer"] = timer.as_json()
        content, json = encode_json(given), {"Content-Type": headers.JSON}
        await self._line.once("PUT", process_url(namespace, process_id), content=content, headers=json)

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
        url = f"{process_url(namespace, process_id)}/trace"
        check_count("after", after, least=0, most=LAST_ID)
        if limit is not None:
            check_count("limit", limit, least=0, most=LAST_ID)
        if last is not None:
            check_count("last", last, least=0, most=LAST_ID)
            if limit is not None:
                raise InvalidRequest("give one of limit and last", field="last")
            if last > MOST_ITEMS:
                return (await self._tasks(url, after, None))[-last:]
            return await self._last(url, after, last)
        return await self._tasks(url, after, limit)

    async def _last(self, url: str, after: int, last: int) -> list[TraceEntry]:
        found: list[TraceEntry] = []
        patience = self._line.patience()
        params = {"after": after, "last": last}
        while True:
            page = (await self._line.send("GET", url, patience, params=params)).json()
            found = [entry_of(each) for each in page["tasks"]] + found
            if page["before"] is None:
                return found
            params |= {"last": last - len(found), "before": page["before"]}

    async def _tasks(self, url: str, after: int, limit: int | None) -> list[TraceEntry]:
        found: list[TraceEntry] = []
        following: int | None = after
        patience = self._line.patience()
        while following is not None and (limit is None or not found or len(found) < limit):
            most = MOST_ITEMS if limit is None else min(MOST_ITEMS, max(1, limit - len(found)))
            params = {"after": following, "limit": most}
            page = (await self._line.send("GET", url, patience, params=params)).json()
            found += [entry_of(each) for each in page["tasks"]]
            following = page["after"]
        return found[:limit]

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
        """Return a page of processes, by namespace, then creation, with their states; as Client.search.

        Raise NamespaceNotFound if `namespace` is not known, and InvalidRequest for a bad filter or cursor.
        """
        params = {
            "namespace": None if namespace is None else check_namespace(namespace),
            "status": status,
            "metadata": metadata_in_query(metadata),
            "timer": timer,
            "created_after": None if created_after is None else created_after.isoformat(),
            "created_before": None if created_before is None else created_before.isoformat(),
            "limit": limit,
            "cursor": cursor,
            "state": "true",
        }
        page = (await self._line.send("GET", "/v1/processes", params=params)).json()
        return Page([process_of(each, []) for each in page["processes"]], page["cursor"])

    async def remove(self, namespace: str, process_id: str) -> None:
        """Remove a process with all its rows now, whatever it does; its callers get ProcessNotFound.

        It is sent once. Raise ProcessNotFound if there is no such process.
        """
        await self._line.once("DELETE", process_url(namespace, process_id))

    async def published(self, namespace: str) -> Published:
        """Return the options and JSON schemas that the workers of a namespace have published.

        Raise NamespaceNotFound if the namespace is not known.
        """
        answer = await self._line.send("GET", f"/v1/namespaces/{check_namespace(namespace)}")
        return Published(**answer.json())

    async def health(self) -> Health:
        """Return whether the API and its database answer, and who serves what; raise no error.

        If they do not within 10 s, `detail` has the text of the error.
        """
        try:
            return health_of(await self._line.exchange("GET", "/health", 10.0, within=10.0))
        except StorageUnavailable as error:
            return Health(False, str(error), 0, ())


def _members(name: str, value: Any, *, raw: bool) -> dict[str, Any]:
    return members_for(name, decode(value, field=name) if isinstance(value, bytes) and not raw else value)
