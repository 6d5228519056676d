"""The console's own files: its style and its scripts, each under a name with the hash of its contents."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """A file, and its name with the hash."""

    name: str
    data: bytes
    media_type: str


@cache
def known_files() -> dict[str, StaticFile]:
    """Return the files by their names in the package."""
    found = {}
    for each in (files("progressor.web") / "static").iterdir():
        stem, _, kind = each.name.rpartition(".")
        if kind in _TYPES:
            data = each.read_bytes()
            name = f"{stem}.{hashlib.sha256(data).hexdigest()[:12]}.{kind}"
            found[each.name] = StaticFile(name, data, _TYPES[kind])
    return found


async def static_file(request: Request) -> Response:
    """Return a file by its name with the hash: it never changes, so browsers may keep it for ever."""
    for each in known_files().values():
        if each.name == request.path_params["name"]:
            lasting = {"Cache-Control": "public, max-age=31536000, immutable"}
            return Response(each.data, media_type=each.media_type, headers=lasting)
    raise HTTPException(404)
