"""Put and remove: processes come and go as they are, without a handler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Request
from starlette.responses import Response

from progressor.errors import InvalidRequest
from progressor.http.server import bodies, request_body
from progressor.http.server.auth.scopes import Caller, require_scope
from progressor.http.server.bodies import ImportBody, ImportedEvent
from progressor.http.server.openapi.operations import ANY_TIME, CREATES, WITH_BODY, answers, takes
from progressor.http.server.routers.requests import process_url
from progressor.http.server.routing import NamespaceName, ProcessId, TheServer, router

routes = router()

_PROCESS = "/v1/namespaces/{namespace}/processes/{process_id}"


@routes.put(
    _PROCESS,
    operation_id="put",
    summary="Import a process as it is",
    status_code=201,
    response_model=None,
    openapi_extra={**takes(ImportBody), **CREATES},
    responses=answers({201: ("It is there.", None)}, (*ANY_TIME, *WITH_BODY, 404, 409)),
)
async def put(
    request: Request,
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("processes:put")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Import it without running a handler. A raw namespace takes `state_base64` and `payload_base64`."""
    published = await server.publications.of(namespace)
    body = await request_body.read_body(request, server.options, request_body.IMPORT)
    # In a thread: other requests are answered while the body is parsed.
    given = await asyncio.to_thread(request_body.model_in, request, body, ImportBody)
    del body
    raw = published.is_raw
    state = bodies.given_value(given, "state", raw=raw, field="args.")
    await server.publications.check_state(namespace, state)
    await server.client.put(
        namespace,
        process_id,
        state=state,
        events=_Events(given.events, raw=raw),
        action=None if given.timer is None else bodies.timer_of(given.timer),
        metadata=given.metadata,
        status=given.status,
    )
    return bodies.shown(None, 201, {"Location": process_url(namespace, process_id)})


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


@routes.delete(
    _PROCESS,
    operation_id="remove",
    summary="Remove a process with all that it has",
    status_code=204,
    response_model=None,
    responses=answers({204: ("It is gone.", None)}, (*ANY_TIME, 404)),
)
async def remove(
    server: TheServer,
    namespace: NamespaceName,
    process_id: ProcessId,
    caller: Annotated[Caller, require_scope("processes:remove")],  # noqa: ARG001 - that it is admitted is enough
) -> Response:
    """Remove it now, whatever it does; callers who wait for it are answered that it is gone."""
    await server.client.remove(namespace, process_id)
    return Response(status_code=204)
