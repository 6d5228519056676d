"""Sessions of browsers: the token that was signed in with, and the proof that a form is the console's own.

Rule: the token stays in a cookie that no script reads, and is checked anew at every request. A form counts
only from a page of this console: the browser says so, and the form holds what only such a page has.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from progressor.http.server.auth.origins import AllowedHosts
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import FORBIDDEN

TOKEN = "progressor_token"  # noqa: S105 - the name of a cookie
FORM = "progressor_form"
FIELD = "form_proof"
_SHOWN = b"authorization"
_YEAR = 365 * 24 * 3600
_SAME_SITE = AllowedHosts()


def with_token(scope: Scope) -> Scope:
    """Return the scope of a request in which the token of its session stands where callers show theirs.

    A token that a proxy has sent counts before it; what else a proxy has sent there is the proxy's own.
    """
    request = Request(scope)
    token, shown = request.cookies.get(TOKEN), request.headers.get(_SHOWN.decode(), "")
    return scope if token is None or shown.lower().startswith("bearer ") else showing(scope, token)


def showing(scope: Scope, token: str) -> Scope:
    """Return the scope of a request that shows this token."""
    others = [(name, value) for name, value in scope["headers"] if name != _SHOWN]
    return {**scope, "headers": [*others, (_SHOWN, b"Bearer " + token.encode("latin-1", "replace"))]}


def secret_of(request: Request) -> str:
    """Return the secret of a browser's forms: that of its cookie, or a new one."""
    return request.cookies.get(FORM) or secrets.token_urlsafe(32)


def proof_of(secret: str) -> str:
    """Return what a form of the browser with this secret holds."""
    return hmac.new(secret.encode(), b"form of the console", hashlib.sha256).hexdigest()


def require_own_form(request: Request, proof: str | None) -> None:
    """Raise Refusal unless a page of this console has sent the form."""
    _SAME_SITE.require_same_site(request.headers)
    secret = request.cookies.get(FORM)
    if not secret or not hmac.compare_digest(proof_of(secret).encode(), (proof or "").encode()):
        raise Refusal(FORBIDDEN, "the form is not from a page that your browser got here: load it again")


def keep(response: Response, request: Request, name: str, value: str, **stated: Any) -> None:
    """Set a cookie that no script reads and no other site sends with a form.

    With `path` None it is for the pages below the folder of this address.
    """
    response.set_cookie(
        name,
        value,
        **{"max_age": _YEAR, "path": "/", "httponly": True, "samesite": "lax", **stated},
        secure=_is_secure(request),
    )


def _is_secure(request: Request) -> bool:
    """Return whether the browser speaks HTTPS, with this server or with a proxy in front of it."""
    # Of a chain of proxies the first names what the browser speaks.
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    return "https" in (request.scope["scheme"], forwarded)
