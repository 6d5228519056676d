"""One request of HttpClient and its answer, and who carries them: connections, or a transport of httpx.

Rule: a request is sent once; RetryingTransport repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import httpx


class NoAnswer(Exception):
    """Nothing came back, or not all of it; the text is the name of the reason's class."""


class Asking(NamedTuple):
    """A request; `silence` is how many seconds the server may say nothing."""

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
        """Whether the status is one of 2xx."""
        return HTTPStatus.OK <= self.status_code < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """The value that the content is JSON of; ValueError if it is none."""
        return json.loads(self.content)


class Transport(Protocol):
    """Sends requests."""

    async def exchange(self, asking: Asking) -> Answer:
        """The answer of one request; NoAnswer if there is none."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class HttpxTransport:
    """A transport of httpx."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def exchange(self, asking: Asking) -> Answer:
        """As Transport."""
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
        """As Transport."""
        await self._inner.aclose()
