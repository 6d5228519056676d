"""The route of the audit: what operators did.

Rule: what concerns no namespace, such as a token, is shown to callers who see all namespaces.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from progressor.acts import MOST_ENTRIES, AuditVerb
from progressor.http.server import bodies
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.auth.scopes import require, seen_by
from progressor.http.server.operation import Routes
from progressor.http.server.parameters import Only, Since, id_text, since_of
from progressor.http.wire.models import AuditBody, plain
from progressor.rights import Scope

routes = Routes()


@routes.add(
    "GET",
    "/v1/audit",
    "What operators did, when, from where and why",
    scope=Scope.AUDIT_READ,
    answers={200: ("A page, newest first.", AuditBody)},
)
async def audit(
    request: ApiRequest,
    namespace: Only = None,
    process_id: Annotated[str | None, id_text("Only processes of this id.")] = None,
    verb: Annotated[AuditVerb | None, Field(description="Only this verb.")] = None,
    since: Since = None,
    limit: Annotated[int, Field(ge=1, le=MOST_ENTRIES, description="The most entries of the page.")] = 100,
    cursor: Annotated[str | None, Field(description="The cursor of the page before.")] = None,
) -> Response:
    """Return what was done in the namespaces that the caller sees; a namespace or a process may be gone."""
    if namespace is not None:
        require(request.caller, Scope.AUDIT_READ, namespace)
    page = await request.server.client.audit(
        namespace,
        process_id=process_id,
        verb=verb,
        since=since_of(since),
        namespaces=seen_by(request.caller),
        limit=limit,
        cursor=cursor,
    )
    shown = (plain(each) for each in page.entries)
    return bodies.Listed("entries", shown, {"cursor": page.cursor})
