"""The routes of transfers: processes exported whole, and imported whole.

Rule: both are for operators, and need the scopes of what the lines have: states, failures, keys and all.
What an import would send to other namespaces needs its scopes there, too.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from progressor.archive.records import PlaceRecord, WholeProcess, write_line
from progressor.archive.wholes import read_wholes
from progressor.errors import InvalidRequest
from progressor.handlers.codec import decode
from progressor.http.server import bodies, request_body
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.principals import Principal
from progressor.http.server.auth.scopes import require
from progressor.http.server.memory import PAGE_WEIGHT
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import MetadataFilter, NamespaceName
from progressor.http.server.request_headers import media_type_of
from progressor.http.wire import headers
from progressor.http.wire.models import ImportedBody
from progressor.inputs import MAX_ID_LENGTH
from progressor.model import ProcessStatus
from progressor.rights import Scope
from progressor.storage import MOST_ITEMS
from progressor.supervision import in_thread

routes = Routes()

_SHOWN = (Scope.PROCESSES_READ, Scope.STATE_READ, Scope.ERRORS_READ)
_LINES = {headers.LINES: {"schema": {"type": "string"}}}


@routes.add(
    "GET",
    "/v1/namespaces/{namespace}/export",
    "A page of processes with all that belongs to them",
    scope=Scope.ADMIN,
    answers={200: ("Lines of JSON.", _LINES)},
)
async def export(
    request: ApiRequest,
    namespace: NamespaceName,
    process_id: Annotated[str | None, Field(min_length=1, max_length=MAX_ID_LENGTH)] = None,
    metadata: MetadataFilter = None,
    status: ProcessStatus | None = None,
    limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 20,
    cursor: Annotated[str | None, Field(description="That of the last line of the page before.")] = None,
) -> Response:
    """Return them in the order of their creation. If there are more, the last line has the cursor.

    It needs the scopes `processes:read`, `state:read` and `errors:read` too.
    """
    for scope in _SHOWN:
        require(request.caller, scope, namespace)
    page = await request.server.client.export_processes(
        namespace,
        process_id=process_id,
        metadata=decode(None if metadata is None else metadata.encode(), field="metadata"),
        status=status,
        limit=limit,
        cursor=cursor,
    )
    place = [] if page.cursor is None else [PlaceRecord(cursor=page.cursor)]
    lines = await in_thread("answer", partial(_written, page.processes))
    body = lines + b"".join(map(write_line, place))
    # How large it is was not known before it was read.
    request.place.reserve_now(PAGE_WEIGHT * len(body))
    return bodies.Whole(body, media_type=headers.LINES)


def _written(processes: list[WholeProcess]) -> bytes:
    return b"".join(write_line(record) for whole in processes for record in whole.records())


@routes.add(
    "POST",
    "/v1/namespaces/{namespace}/import",
    "Import processes as an export has them",
    scope=Scope.ADMIN,
    takes={"requestBody": {"content": _LINES, "required": True}},
    answers={200: ("Of each whether it is imported, or was there already.", ImportedBody)},
)
async def import_(request: ApiRequest, namespace: NamespaceName) -> Response:
    """Write them all in one transaction, but those that are there already. It may be repeated.

    It needs the scope `processes:put` too, and both in each namespace to which a message of them goes.
    """
    _require_import(request.caller, namespace)
    body = await request_body.read_body(request, request_body.IMPORT)
    if media_type_of(request.headers) != headers.LINES:
        raise request_body.wrong_type(media_type_of(request.headers), headers.LINES, "an export is lines")
    if not body.strip():
        raise InvalidRequest("the body has no line", field="args")
    # In a thread: other requests are answered while the body is parsed.
    processes = await in_thread("request", partial(_read, body, namespace))
    del body
    for target in sorted({each.to_namespace for whole in processes for each in whole.messages}):
        _require_import(request.caller, target)
    outcomes = await request.server.client.import_processes(processes)
    return bodies.shown({"outcomes": outcomes})


def _require_import(caller: Principal, namespace: str) -> None:
    for scope in (Scope.ADMIN, Scope.PROCESSES_PUT):
        require(caller, scope, namespace)


def _read(body: bytes, namespace: str) -> list[WholeProcess]:
    found = list(read_wholes(body.splitlines()))
    for whole in found:
        if whole.process.namespace != namespace:
            raise InvalidRequest(
                f"a process of namespace {whole.process.namespace} is imported at that one", field="args"
            )
    return found
