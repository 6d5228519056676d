"""Registers and sets behind the HTTP paths that Restate's Jepsen tests use: keyed objects, one call a path.

Rule: an answer carries the token of the request that the handler was given, so that a stranger's answer
shows. Who is answered 503 does not know what became of the request.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from progressor import Client, HistoryRange, ProcessNotFound, Rejected, ReplyTimeout, StorageUnavailable

TOKEN = "token"
_SECONDS = 1.5
_NO_EVENTS = HistoryRange(limit=0)

Serve = Callable[[Request], Awaitable[Response]]


def facade(client: Client) -> Starlette:
    """`GET /{service}/{key}/get` looks at the state; `POST /{service}/{key}/{name}` calls the object."""

    async def look(request: Request) -> Response:
        service, key = request.path_params["service"], request.path_params["key"]
        try:
            process = await client.get(service, key, range=_NO_EVENTS, timeout=_SECONDS)
        except ProcessNotFound:
            return JSONResponse(None, headers={TOKEN: request.headers[TOKEN]})
        return JSONResponse(process.state, headers={TOKEN: request.headers[TOKEN]})

    async def call(request: Request) -> Response:
        path, body = request.path_params, await request.body()
        args = {"token": request.headers[TOKEN], "value": json.loads(body) if body else None}
        try:
            answer = await call_object(client, path["service"], path["key"], path["name"], args)
        except Rejected as refusal:
            return JSONResponse({"message": refusal.reason}, 412, {TOKEN: refusal.details["token"]})
        return JSONResponse(answer["value"], headers={TOKEN: answer["token"]})

    return Starlette(
        routes=[
            Route("/{service}/{key}/get", _or_unknown(look), methods=["GET"]),
            Route("/{service}/{key}/{name}", _or_unknown(call), methods=["POST"]),
        ]
    )


def _or_unknown(serve: Serve) -> Serve:
    async def served(request: Request) -> Response:
        try:
            return await serve(request)
        except (ReplyTimeout, StorageUnavailable) as error:
            return JSONResponse({"message": str(error)}, 503)

    return served


async def call_object(
    client: Client, service: str, key: str, name: str, args: dict[str, Any]
) -> dict[str, Any]:
    """The answer of an object, which comes to be when it is first called."""
    process = client.process(service, key)
    try:
        answer: dict[str, Any] = await process.call(name, args, timeout=_SECONDS)
    except ProcessNotFound:
        await process.start(idempotency_key="first", timeout=_SECONDS)
        answer = await process.call(name, args, timeout=_SECONDS)
    return answer
