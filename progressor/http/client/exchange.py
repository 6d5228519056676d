"""One request of HttpClient, its answer, and the transports that carry them: connections, or one of httpx.

Rule: a transport sends a request once; RetryingTransport repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import httpx


class NoAnswer(Exception):
    """Error: no answer came back, or not all of it; the text is the class name of the cause."""


class Asking(NamedTuple):
    """A request; `silence` is in seconds: how long the server may send nothing."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    silence: float


class Answer:
    """An answer, read whole."""

    __slots__ = ("content", "headers", "status_code")

    def __init__(self, status_code: int, headers: Mapping[str, str], content: bytes) -> None:
        self.status_code = status_code
        self.headers = headers
        self.content = content

    @property
    def is_success(self) -> bool:
        """Return whether the status is one of 2xx."""
        return HTTPStatus.OK <= self.status_code < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """Return the value of the content, which is JSON; raise ValueError if it is not."""
        return json.loads(self.content)


class Transport(Protocol):
    """A transport of requests."""

    async def exchange(self, asking: Asking) -> Answer:
        """Send one request, and return its answer; raise NoAnswer if there is none."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class HttpxTransport:
    """A transport of httpx."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def exchange(self, asking: Asking) -> Answer:
        """Send one request, and return its answer; raise NoAnswer if there is none."""
        limits = dict.fromkeys(("connect", "read", "write", "pool"), asking.silence)
        request = httpx.Request(
            asking.method,
            asking.url,
            headers=asking.headers,
            content=asking.content,
            extensions={"timeout": limits},
        )
        try:
            answer = await self._inner.handle_async_request(request)
            return Answer(answer.status_code, answer.headers, await answer.aread())
        except httpx.TransportError as error:
            raise NoAnswer(type(error).__name__) from error

    async def aclose(self) -> None:
        """Close the transport of httpx."""
        await self._inner.aclose()
