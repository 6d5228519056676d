"""Sign-in with a token, sign-out, and what a browser prefers."""

from __future__ import annotations

import re
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from progressor.errors import InvalidRequest
from progressor.http.server.problems import Refusal
from progressor.web.page import PageRequest, Pages
from progressor.web.preferences import KEYS, LIVE, MUTED, THEME, ZONE, Theme, zones
from progressor.web.problem import PageProblem
from progressor.web.session import TOKEN, keep, showing

pages = Pages()

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
# A place below the console's root: no scheme, no host, no way up, which browsers find in %2e%2e too.
_SEGMENT = r"(?!(\.|%2[eE]){1,2}(/|\?|$))[A-Za-z0-9~._%-]+"
_PLACE = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*(\?[A-Za-z0-9~._%=&+:,*-]*)?")


@pages.get("/sign-in", scope=None, is_public=True)
async def sign_in(request: PageRequest) -> Response:
    """Return the form that takes a token."""
    return request.page("sign_in.html", "Sign in", back=request.query_params.get("back", ""), refused=None)


@pages.post("/sign-in", scope=None, is_public=True)
async def begin_session(request: PageRequest) -> Response:
    """Keep the token in the browser if it holds, and lead to the page that was asked for."""
    token, back = request.fields.get("token", "").strip(), request.fields.get("back", "")
    if not _TOKEN.fullmatch(token):
        return _again(request, back, "A token is one word of letters, digits and signs.")
    try:
        await request.server.access.admit(Request(showing(request.scope, token)))
    except Refusal as refusal:
        return _again(request, back, refusal.detail)
    answer = request.to(back if _PLACE.fullmatch(back) else "")
    # For the pages of this console alone, not for others under the same host: sign-in stands in its root.
    keep(answer, request, TOKEN, token, path=None)
    return answer


def _again(request: PageRequest, back: str, refused: str) -> Response:
    return request.page("sign_in.html", "Sign in", code=401, back=back, refused=refused)


@pages.post("/sign-out", scope=None, is_public=True)
async def end_session(request: PageRequest) -> Response:
    """Forget the token."""
    answer = request.to("sign-in", "You are signed out.")
    keep(answer, request, TOKEN, "", path=None, max_age=0)
    return answer


@pages.get("/settings", scope=None)
async def settings(request: PageRequest) -> Response:
    """Return what this browser prefers, and who its user is."""
    return _settings_page(request)


def _settings_page(request: PageRequest, problem: PageProblem | None = None) -> Response:
    return request.page(
        "settings.html", "Settings", problem=problem, zones=sorted(zones()), themes=get_args(Theme)
    )


@pages.post("/settings", scope=None)
async def prefer(request: PageRequest) -> Response:
    """Keep what a browser prefers."""
    form = request.fields
    for field, known in (("zone", zones()), ("theme", get_args(Theme)), ("live", ("on", "off"))):
        if field in form and form[field] not in known:
            error = InvalidRequest(f"{field} must be chosen from its list", field=field)
            return _settings_page(request, request.problem_of(error))
    # An empty one is the overview.
    back = form.get("back", "settings")
    answer = request.to(back if not back or _PLACE.fullmatch(back) else "settings")
    for name, field in ((ZONE, "zone"), (THEME, "theme"), (LIVE, "live"), (KEYS, "keys")):
        if field in form:
            keep(answer, request, name, form[field])
    if "mute" in form or "unmute" in form:
        keep(answer, request, MUTED, request.preferences.muting(form))
    return answer
