"""Processes by namespace, status, metadata, timer and age, a page at a time.

Rule: the address holds the whole search. A total is never counted.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from progressor.errors import InvalidRequest, NamespaceNotFound
from progressor.handlers.codec import decode
from progressor.http.server.auth.scopes import require, seen_by
from progressor.http.server.problems import Refusal
from progressor.http.wire.models import process_document
from progressor.inputs import check_since
from progressor.rights import Scope
from progressor.texts import short
from progressor.web.page import MISTYPED, PageRequest, Pages
from progressor.web.pages.namespaces.namespace import offered_namespaces
from progressor.web.rendering import process_path
from progressor.web.typed import since_of

pages = Pages()

_PAGE = 50
# Processes that a page looks at: some tens of milliseconds.
_LOOKS = 20_000


class Filter(NamedTuple):
    """A search, as the address of its page has it."""

    namespace: str = ""
    status: str = ""
    metadata: str = ""
    timer: str = ""
    since: str = ""
    cursor: str = ""

    @classmethod
    def of(cls, request: PageRequest) -> Filter:
        """Return the search of this address; what it does not name is not filtered."""
        return cls(**{name: request.query_params.get(name, "").strip() for name in cls._fields})

    def query(self, **changes: str) -> str:
        """Return the query of the same search with these changes."""
        stated = {name: value for name, value in self._replace(**changes)._asdict().items() if value}
        return f"?{urlencode(stated)}" if stated else ""

    def created_after(self, zone: tzinfo) -> datetime | None:
        """Return the time from which on processes were created, None for all."""
        begin, ago = check_since(since_of(self.since, zone))
        return begin if ago is None else datetime.now(UTC) - ago


def metadata_of(text: str) -> Any:
    """Return the metadata that `plan=pro customer=17` or a JSON object names; None for an empty text."""
    if not text or text.startswith("{"):
        return decode(text.encode(), field="metadata") if text else None
    found: dict[str, Any] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InvalidRequest(
                "metadata must be written as plan=pro or as a JSON object, with text for each value",
                field="metadata",
            )
        found[name] = value
    return found


@pages.get("/processes", scope=Scope.PROCESSES_READ)
async def processes(request: PageRequest) -> Response:
    """Return a page of the processes that match."""
    wanted, found, following, problem = Filter.of(request), list[dict[str, Any]](), None, None
    try:
        found, following = await _found(request, wanted)
    except MISTYPED as error:
        problem = request.problem_of_filter(error)
    return request.page(
        "processes.html",
        "Processes",
        problem=problem,
        found=found,
        offered=await offered_namespaces(request, Scope.PROCESSES_READ),
        wanted=wanted,
        following=following,
    )


async def _found(request: PageRequest, wanted: Filter) -> tuple[list[dict[str, Any]], str | None]:
    """Return the processes of a page, and the cursor of the next one."""
    if wanted.namespace:
        require(request.caller, Scope.PROCESSES_READ, wanted.namespace)
    reader = request.server.client.reader
    found, following = await reader.search(
        namespace=wanted.namespace or None,
        namespaces=seen_by(request.caller),
        status=wanted.status or None,
        metadata=metadata_of(wanted.metadata),
        timer=wanted.timer or None,
        created_after=wanted.created_after(request.preferences.zone),
        limit=_PAGE,
        cursor=wanted.cursor or None,
        states=False,
        looks=_LOOKS,
    )
    shown = [
        process_document(
            await reader.view(each),
            state=False,
            history=False,
            failures=request.reads_failures(each.namespace),
        )
        for each in found
    ]
    return shown, following


@pages.get("/find", scope=Scope.PROCESSES_READ)
async def find(request: PageRequest) -> Response:
    """Lead to the process that a text names as NAMESPACE/PROCESS_ID, or to the search of a namespace."""
    namespace, slash, process_id = request.query_params.get("q", "").strip().partition("/")
    if slash and process_id:
        return request.to(process_path("", namespace, process_id))
    if not namespace:
        return request.to("processes")
    try:
        require(request.caller, Scope.PROCESSES_READ, namespace)
        await request.server.client.published(namespace)
    except (Refusal, NamespaceNotFound, InvalidRequest):
        # Of namespaces that its caller does not see it says nothing else.
        return request.to(
            "processes", f"{short(namespace)} is no namespace. A process is found by NAMESPACE/PROCESS ID."
        )
    return request.to(f"processes{Filter(namespace=namespace).query()}")
