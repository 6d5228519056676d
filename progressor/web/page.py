"""Pages and forms: a table of routes, each with the scope that it needs.

Rule: whoever lacks the scope gets no page and changes nothing. A form changes something only if it came
from a page of this console, and then leads to a page.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope as AsgiScope, Send

from progressor.acts import Way, check_line
from progressor.errors import InvalidRequest, NamespaceNotFound, ProgressorError
from progressor.http.server.api_request import REQUEST_ID, ApiRequest, facts_of
from progressor.http.server.app import methods_of
from progressor.http.server.auth.scopes import seen_by
from progressor.http.server.problems import Refusal
from progressor.http.wire.paths import text_of
from progressor.http.wire.problems import FORBIDDEN, TOO_LARGE, TOO_SLOW, UNAUTHORIZED
from progressor.inputs import LAST_ID
from progressor.loggers import Logger
from progressor.rights import Scope
from progressor.web.headers import guard
from progressor.web.preferences import BrowserPreferences
from progressor.web.problem import PageProblem
from progressor.web.rendering import Rendering
from progressor.web.session import FIELD, FORM, keep, proof_of, require_own_form, secret_of, with_token

log = Logger("progressor.web")

Endpoint = Callable[..., Awaitable[Response]]

# Headers of a refusal that its page has too.
_KEPT = ("Retry-After", "Connection")
_MOST_BYTES = 1 << 20
# Seconds in which a whole form must have come.
_FORM_SECONDS = 60.0
# All who are not signed in, together: they must not take the places of those who are.
_STRANGERS = "strangers"
_MOST_FIELDS = 100
# Of the key of a form, which is drawn with its page.
_KEY_BYTES, _KEY_LENGTH = 16, 22
_LEFT = 499
# A note for the page behind a form: a browser shows it once.
_NOTE = "progressor_note"
_LONGEST_NOTE = 500
_NUMBER = re.compile("[0-9]{1,19}")


MISTYPED = (InvalidRequest, NamespaceNotFound, Refusal)
"""The errors after which a page comes back with its filter, as it was typed."""


class PageRequest(ApiRequest):
    """A request of a browser."""

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.preferences = BrowserPreferences.of(self.cookies)
        self.fields: dict[str, str] = {}
        self.read_only: bool = scope["app"].state.read_only
        self.is_mounted: bool = scope["app"].state.is_mounted

    @property
    def base(self) -> str:
        """Return the address of the console's root, relative to this page: no prefix needs to be known."""
        return "../" * self.below.count("/") or "./"

    @property
    def below(self) -> str:
        """Return the path of this page, as it was sent, from the console's root."""
        # What answers a defect stands around the middleware that leaves the path undecoded.
        raw = self.scope.get("raw_path")
        path: str = self.scope["path"] if raw is None else raw.decode("latin-1")
        return path.removeprefix(self.scope.get("root_path", "")).removeprefix("/")

    @property
    def here(self) -> str:
        """Return the address of this page below the console's root; of a form, that of its page."""
        if self.method == "POST":
            return self.below.rpartition("/")[0] or self.below
        query = self.scope["query_string"].decode("latin-1")
        return f"{self.below}?{query}" if query else self.below

    def problem_of(self, error: Refusal | ProgressorError) -> PageProblem:
        """Return the problem of an error, with what its caller may read of it."""
        namespace = getattr(error, "namespace", None)
        shows = self.reads_failures(namespace)
        return PageProblem.of(error, namespaces=self.caller.namespaces, shows_failures=shows)

    def problem_of_filter(self, error: Refusal | ProgressorError) -> PageProblem:
        """Return the problem of a filter that was mistyped; a namespace that is none has no other field."""
        found = self.problem_of(error)
        return found if found.field else replace(found, field="namespace")

    def may(self, scope: Scope, namespace: str | None = None) -> bool:
        """Return whether the caller has the scope in this namespace; None: in those that it sees."""
        return self.caller.may(scope, namespace)

    def require_all(self, what: str) -> None:
        """Raise Refusal if namespaces are hidden from the caller, as what is shown may be of any."""
        if seen_by(self.caller) is not None:
            raise Refusal(FORBIDDEN, f"{what} shown to those who see all namespaces")

    def page(
        self,
        template: str,
        title: str,
        *,
        code: int = HTTPStatus.OK,
        problem: PageProblem | None = None,
        **values: Any,
    ) -> Response:
        """Return a page: this template with these values, in the frame that all pages have."""
        secret = secret_of(self)
        text = Rendering(self.preferences).text(
            template,
            request=self,
            title=title,
            base=self.base,
            proof=proof_of(secret),
            note=_note_of(self),
            problem=problem,
            may=self.may,
            Scope=Scope,
            key=self._key(problem),
            **values,
        )
        answer = Response(text, problem.status if problem else code, media_type="text/html; charset=utf-8")
        if not self.cookies.get(FORM):
            keep(answer, self, FORM, secret, samesite="strict")
        if _NOTE in self.cookies:
            answer.delete_cookie(_NOTE)
        return answer

    def _key(self, problem: PageProblem | None) -> str:
        """Return the key of what a form of this page asks: sent twice, it is done once.

        A form that comes back because nobody knows whether it was accepted keeps its own.
        """
        given = self.fields.get("key", "")[:_KEY_LENGTH]
        if problem is not None and problem.may_be_done and len(given) == _KEY_LENGTH:
            return given
        return secrets.token_urlsafe(_KEY_BYTES)

    def to(self, path: str, note: str | None = None) -> Response:
        """Return the way to another page of the console, where a note is shown once."""
        answer = RedirectResponse(self.base + path, HTTPStatus.SEE_OTHER)
        if note is not None:
            keep(answer, self, _NOTE, quote(note[:_LONGEST_NOTE]), max_age=60)
        return answer

    async def read_form(self) -> None:
        """Read the fields of a form; raise Refusal if it is too long, or not the console's own."""
        data = b""
        try:
            async with asyncio.timeout(_FORM_SECONDS):
                async for part in self.stream():
                    data += part
                    if len(data) > _MOST_BYTES:
                        raise Refusal(TOO_LARGE, f"a form may have {_MOST_BYTES:,} bytes")
        except TimeoutError:
            detail = f"the form has not come within {_FORM_SECONDS:g} s"
            # Without this header the connection would go on to wait for the rest.
            raise Refusal(TOO_SLOW, detail, headers={"Connection": "close"}) from None
        try:
            fields = parse_qsl(
                data.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            raise InvalidRequest(f"the form must be UTF-8, with at most {_MOST_FIELDS} fields") from None
        self.fields = dict(fields)
        require_own_form(self, self.fields.get(FIELD))

    @property
    def reason(self) -> str | None:
        """Return the reason that the form states, for the audit."""
        text = self.fields.get("reason", "").strip()
        return None if not text else check_line("reason", text)


class ConsolePage(Route):
    """A page, or with the method POST a form; `scope` None: for everybody who is let in."""

    def __init__(
        self, method: str, path: str, endpoint: Endpoint, *, scope: Scope | None, is_public: bool = False
    ) -> None:
        super().__init__(path, endpoint)
        self.methods = {method}
        self.scope = scope
        self.is_public = is_public
        self.is_form = method == "POST"

    @property
    def changes_processes(self) -> bool:
        """Return whether it is left out of a console that only reads."""
        return self.is_form and self.scope is not None

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request for this path."""
        scope["route"] = self
        if self.methods is None or scope["method"] not in self.methods:
            await super().handle(scope, receive, send)
            return
        request = PageRequest(with_token(scope), receive, send)
        try:
            answer = await self._answer(request)
            await answer(scope, receive, send)
        finally:
            request.place.leave()

    async def _answer(self, request: PageRequest) -> Response:
        try:
            values = await self._admitted(request)
            with self._acting(request):
                answer: Response = await self.endpoint(request, **values)
        except ClientDisconnect:
            return Response(status_code=_LEFT)
        except (Refusal, ProgressorError) as error:
            is_unknown = isinstance(error, Refusal) and error.kind is UNAUTHORIZED
            if is_unknown and not request.is_mounted and not self.is_form:
                return request.to(f"sign-in?back={quote(request.here, safe='')}")
            answer = _problem(request, request.problem_of(error))
            if isinstance(error, Refusal):
                answer.headers.update(
                    {name: error.headers[name] for name in _KEPT if name in error.headers}
                )
        return answer

    async def _admitted(self, request: PageRequest) -> dict[str, str]:
        """Return the names in the path of a request whose caller may make it; raise Refusal."""
        request.place.enter()
        names = {name: text_of(segment, name) for name, segment in request.path_params.items()}
        if self.is_public:
            request.place.claim(_STRANGERS)
        else:
            await request.admit(self.scope, names.get("namespace"))
            request.place.claim(request.caller.name)
        if self.is_form:
            await request.read_form()
        return names

    def _acting(self, request: PageRequest) -> AbstractContextManager[None]:
        return request.acting(Way.CONSOLE, request.reason) if self.changes_processes else nullcontext()


class Pages(list[ConsolePage]):
    """The pages of one module, in their order."""

    def get(self, path: str, **stated: Any) -> Callable[[Endpoint], Endpoint]:
        """Add the decorated endpoint as a page; `stated` are those of ConsolePage."""
        return self._added("GET", path, stated)

    def post(self, path: str, **stated: Any) -> Callable[[Endpoint], Endpoint]:
        """Add the decorated endpoint as what a form does."""
        return self._added("POST", path, stated)

    def _added(self, method: str, path: str, stated: dict[str, Any]) -> Callable[[Endpoint], Endpoint]:
        def added(endpoint: Endpoint) -> Endpoint:
            self.append(ConsolePage(method, path, endpoint, **stated))
            return endpoint

        return added


async def of_http(request: Request, error: Any) -> Response:
    """Return the page for a path that is none, or none of this method."""
    seen = PageRequest(request.scope, request.receive, request._send)  # noqa: SLF001 - as Starlette makes it
    missing = error.status_code == HTTPStatus.NOT_FOUND
    title = "There is no such page" if missing else "This page takes no such form"
    answer = _problem(seen, PageProblem(error.status_code, title, "Begin at the overview."))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(sorted(methods_of(request)))
    return answer


async def of_defect(request: Request, error: Any) -> Response:
    """Return the page for a defect of the console, which its log describes."""
    facts = facts_of(request.scope)
    log.error("request failed", extra={"method": request.method, **facts}, exc_info=error)
    seen = PageRequest(request.scope, request.receive, request._send)  # noqa: SLF001 - as Starlette makes it
    status, request_id = HTTPStatus.INTERNAL_SERVER_ERROR, facts["request_id"]
    detail = f"The log describes it, under the request id {request_id}."
    answer = _problem(seen, PageProblem(status, "A defect of the console", detail))
    # No middleware is around it.
    guard(answer.headers)
    answer.headers[REQUEST_ID] = request_id
    return answer


def _problem(request: PageRequest, problem: PageProblem) -> Response:
    return request.page("problem.html", problem.title, problem=problem)


def _note_of(request: PageRequest) -> str | None:
    note = request.cookies.get(_NOTE)
    return None if note is None else unquote(note)[:_LONGEST_NOTE]


def number_of(text: str, field: str) -> int:
    """Return the number of a task, an event, a bulk or an entry; raise InvalidRequest if it is none."""
    if not _NUMBER.fullmatch(text) or int(text) > LAST_ID:
        raise InvalidRequest(f"{field} must be a number", field=field)
    return int(text)
