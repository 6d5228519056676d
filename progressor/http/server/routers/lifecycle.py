"""Put and remove: processes come and go as they are, without a handler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from progressor.errors import InvalidRequest
from progressor.handlers.codec import decode
from progressor.http.server import bodies, request_body
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require
from progressor.http.server.bodies import ImportBody, ImportedEvent
from progressor.http.server.openapi.operations import CREATES, NOTHING, takes
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import MetadataFilter, NamespaceName, ProcessId
from progressor.http.wire.models import RemovalsBody, plain
from progressor.http.wire.paths import PROCESS, process_url
from progressor.model import ProcessStatus
from progressor.rights import Scope
from progressor.storage import MOST_ITEMS
from progressor.supervision import in_thread

routes = Routes()


@routes.add(
    "PUT",
    PROCESS,
    "Import a process as it is",
    scope=Scope.PROCESSES_PUT,
    takes={**takes(ImportBody), **CREATES},
    answers={201: ("It is there.", NOTHING)},
    problems=(409,),
)
async def put(request: ApiRequest, namespace: NamespaceName, process_id: ProcessId) -> Response:
    """Import it without running a handler. A raw namespace takes `state_base64` and `payload_base64`."""
    server = request.server
    published = await server.publications.of(namespace)
    body = await request_body.read_body(request, request_body.IMPORT)
    # In a thread: other requests are answered while the body is parsed.
    given = await in_thread("request", partial(request_body.model_in, request, body, ImportBody))
    del body
    raw = published.is_raw
    state = bodies.given_value(given, "state", raw=raw, field="args.")
    await server.publications.check_state(namespace, state)
    await server.client.put(
        namespace,
        process_id,
        state=state,
        events=_Events(given.events, raw=raw),
        action=given.all_timers,
        metadata=given.metadata,
        status=given.status,
    )
    request.answer_headers["Location"] = process_url(namespace, process_id)
    return bodies.shown(None, 201)


class _Events(Sequence[dict[str, Any]]):
    """Events as Client.put takes them, each made when it is asked for."""

    def __init__(self, given: list[ImportedEvent], *, raw: bool) -> None:
        self._given = given
        self._raw = raw

    def __len__(self) -> int:
        return len(self._given)

    def __getitem__(self, place: Any) -> Any:
        return _event(self._given[place], raw=self._raw, field=f"args.events.{place}.")


def _event(given: ImportedEvent, *, raw: bool, field: str) -> dict[str, Any]:
    """Return an event as Client.put takes it; raise InvalidRequest if its payload is missing."""
    payload = bodies.given_value(given, "payload", raw=raw, field=field)
    member = "payload_base64" if raw else "payload"
    if member not in given.model_fields_set or (raw and payload is None):
        raise InvalidRequest(f"{field}{member} is missing", field=field + member)
    stated = given.model_dump(include={"name", "timestamp", "metadata"}, exclude_none=True)
    return {**stated, "payload": payload}


@routes.add(
    "DELETE",
    PROCESS,
    "Remove a process with all that it has",
    scope=Scope.PROCESSES_REMOVE,
    answers={204: ("It is gone.", None)},
)
async def remove(request: ApiRequest, namespace: NamespaceName, process_id: ProcessId) -> Response:
    """Remove it now, whatever it does; callers who wait for it are answered that it is gone."""
    await request.server.client.remove(namespace, process_id)
    return Response(status_code=204)


@routes.add(
    "DELETE",
    "/v1/namespaces/{namespace}/processes",
    "Remove a page of the processes that match, with all that they have",
    scope=Scope.PROCESSES_REMOVE,
    answers={200: ("A receipt of each.", RemovalsBody)},
)
async def remove_matching(
    request: ApiRequest,
    namespace: NamespaceName,
    metadata: MetadataFilter = None,
    status: ProcessStatus | None = None,
    limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 100,
    cursor: Annotated[str | None, Field(description="The cursor that the page before returned.")] = None,
    dry_run: Annotated[bool, Field(description="Only say which.")] = False,
) -> Response:
    """Remove them as one is removed, the oldest first; `metadata` or `status` says which.

    The receipts name processes, which needs the scope `processes:read`. A page whose answer was lost may be
    asked for again: it removes what is left, and the audit has the others.
    """
    require(request.caller, Scope.PROCESSES_READ, namespace)
    given = None if metadata is None else decode(metadata.encode(), field="metadata")
    page = await request.server.client.remove_processes(
        namespace,
        # `null` is no filter, and says of none that it be left out.
        metadata={} if given is None and metadata is not None else given,
        status=status,
        limit=limit,
        cursor=cursor,
        dry_run=dry_run,
    )
    shown = (plain(each) for each in page.removals)
    return bodies.Listed("removals", shown, {"cursor": page.cursor})
