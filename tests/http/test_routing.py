"""What a route takes from a request by itself, and what it leaves to FastAPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import Depends, Header, Query, Request, Response

from progressor.http.access import public
from progressor.http.routing import Route


async def of_request(request: Request) -> str:
    return request.method


async def of_header(request: Request, wanted: Annotated[str | None, Header()] = None) -> str:
    return wanted or request.method


async def of_query(request: Request, wanted: Annotated[str | None, Query()] = None) -> str:
    return wanted or request.method


async def of_another(request: Request, found: Annotated[str, Depends(of_request)]) -> str:
    return found or request.method


async def of_nothing() -> str:
    return ""


def route(dependency: Callable[..., Any]) -> Route:
    async def endpoint(request: Request, found: Annotated[str, Depends(dependency)]) -> Response:
        return Response(found, headers={"path": request.url.path})

    endpoint.__annotations__ = {"request": Request, "found": Annotated[str, Depends(dependency)]}
    return Route("/x/{name}", endpoint, dependencies=[public], methods=["GET"])


def test_what_reads_the_request_alone_is_called_by_the_route() -> None:
    """Without FastAPI's tree."""
    assert route(of_request)._taken is not None


@pytest.mark.parametrize("dependency", [of_header, of_query, of_another, of_nothing])
def test_what_reads_more_is_left_to_fastapi(dependency: Callable[..., Any]) -> None:
    """Called with the request alone, it would miss what it asks for."""
    assert route(dependency)._taken is None
