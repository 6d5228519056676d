"""Operations: a table of routes, each with the scope that it needs and its documentation.

Rule: an operation without a scope is public, and is not documented.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from inspect import cleandoc
from typing import Any

from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope as AsgiScope, Send

from progressor.acts import Way
from progressor.errors import NamespaceNotFound, ProcessAlreadyExists, ProgressorError
from progressor.http.server.api_request import ApiRequest, named_by
from progressor.http.server.parameters import Parameters
from progressor.http.server.preconditions import SAFE, Conditions, wants_absence
from progressor.http.server.problems import Refusal, problem, problem_of
from progressor.http.server.request_body import refuse_body
from progressor.http.server.request_headers import reason_of, refuse_key, require_single, trace_headers
from progressor.http.wire import problems
from progressor.http.wire.headers import IDEMPOTENCY_KEY, JSON
from progressor.http.wire.paths import text_of
from progressor.rights import Scope, fitting
from progressor.spans.in_use import tracing_request

Endpoint = Callable[..., Awaitable[Response]]
Answers = Mapping[int, tuple[str, type[BaseModel] | Mapping[str, Any] | None]]

# The status that nginx logs for a caller who has left before there was an answer.
_LEFT = 499
# Names that a problem suggests, of the namespaces that may have been meant and that the caller sees.
_MOST_SIMILAR = 3


class Operation(Route):
    """One operation of the API.

    `answers` are good answers: a description, and a model or a content, by status. `problems` are statuses
    beside those that any request may get, or any with such a path or a body; `never` are those of them that
    this one does not get. `takes` documents the body and the headers that it reads.
    """

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        summary: str,
        *,
        scope: Scope | None,
        answers: Answers | None = None,
        problems: Collection[int] = (),
        never: Collection[int] = (),
        takes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(path, endpoint)
        self.methods = {method}
        self.scope = scope
        self.summary, self.description = summary, cleandoc(endpoint.__doc__ or "")
        self.answers, self.problems, self.never = answers or {}, problems, never
        self.takes = takes or {}
        self.parameters = Parameters(path, endpoint)
        kept = {each["name"] for each in self.takes.get("parameters", ())}
        self._conditions = Conditions(self.methods, kept)
        self.is_read = SAFE.issuperset(self.methods)
        # A read may be repeated with or without a key.
        self._refuses_keys = IDEMPOTENCY_KEY not in kept and not self.is_read
        self._refuses_bodies = "requestBody" not in self.takes and not self.is_read
        bodies = [body for _, body in self.answers.values() if body is not None]
        self._is_json = bool(bodies) and all(isinstance(body, type) for body in bodies)
        # Probes need no place: a server must not be restarted because it is busy.
        self._is_bounded = not path.startswith("/health")

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request for this path."""
        scope["route"] = self
        if self.methods is None or scope["method"] not in self.methods:
            await super().handle(scope, receive, send)
            return
        request = ApiRequest(scope, receive, send)
        try:
            answer = await self._answer(request)
            if request.rate is not None:
                answer.raw_headers += request.rate.headers
            await answer(scope, receive, send)
        finally:
            request.place.leave()

    async def _answer(self, request: ApiRequest) -> Response:
        """Return the answer of the endpoint, or the problem that its error stands for."""
        try:
            values = await self._admitted(request)
            with self._acting(request), tracing_request(*trace_headers(request.headers)) as trace_id:
                if trace_id is not None:
                    request.facts["trace_id"] = trace_id
                answer: Response = await self.endpoint(request, **values)
        except Refusal as refusal:
            return refusal.answer()
        except ClientDisconnect:
            # Nobody receives it: its status is counted and logged.
            return Response(status_code=_LEFT)
        except ProgressorError as error:
            answer = _problem_of(request, error)
        answer.raw_headers += [
            (name.lower().encode("latin-1"), text.encode("latin-1"))
            for name, text in request.answer_headers.items()
        ]
        return answer

    def _acting(self, request: ApiRequest) -> AbstractContextManager[None]:
        """Return the block in which the audit notes what is done as done by the caller of a request.

        Raise InvalidRequest for a reason that cannot be kept.
        """
        return nullcontext() if self.is_read else request.acting(Way.HTTP, reason_of(request.headers))

    async def _admitted(self, request: ApiRequest) -> dict[str, Any]:
        """Return the parameters of a request whose caller may make it; raise Refusal or InvalidRequest."""
        if self._is_bounded:
            request.place.enter()
        if self.scope is not None:
            segment = request.path_params.get("namespace")
            await request.admit(self.scope, None if segment is None else text_of(segment, "namespace"))
            if self._is_bounded:
                request.place.claim(request.caller.name)
        require_single(request.headers)
        self._conditions.check(request.headers)
        if self._refuses_keys:
            refuse_key(request.headers)
        values = self.parameters.values(request)
        request.facts.update(named_by(values))
        if self._is_json:
            request.require_acceptable(JSON)
        if self._refuses_bodies:
            await refuse_body(request)
        return values


def _problem_of(request: ApiRequest, error: ProgressorError) -> Response:
    if isinstance(error, ProcessAlreadyExists) and wants_absence(request.headers):
        return problem(problems.PRECONDITION_FAILED, str(error), members=problems.members_of(error))
    if isinstance(error, NamespaceNotFound):
        seen = fitting(request.caller.namespaces, error.similar)
        error = NamespaceNotFound(error.namespace, seen[:_MOST_SIMILAR])
    shows = request.reads_failures(getattr(error, "namespace", None))
    return problem_of(error, shows_failures=shows)


class Routes(list[Operation]):
    """The operations of one module, in their order."""

    def add(self, method: str, path: str, summary: str, **stated: Any) -> Callable[[Endpoint], Endpoint]:
        """Add the decorated endpoint; `stated` are those of Operation."""

        def added(endpoint: Endpoint) -> Endpoint:
            self.append(Operation(method, path, endpoint, summary, **stated))
            return endpoint

        return added
