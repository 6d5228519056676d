"""One request of HttpClient, its answer, and the transports that carry them: connections, or one of httpx.

Rule: a transport sends a request once; RetryingTransport repeats it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
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


class Answer(NamedTuple):
    """An answer, read whole."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Return whether the status is one of 2xx."""
        return HTTPStatus.OK <= self.status_code < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """Return the value of the content, which is JSON; raise ValueError if it is not."""
        return json.loads(self.content)


class StreamedAnswer(NamedTuple):
    """An answer that is read as it comes: `parts` yields its bytes; NoAnswer if they end early."""

    status_code: int
    headers: Mapping[str, str]
    parts: AsyncIterator[bytes]

    async def whole(self) -> Answer:
        """Return the answer, once all of it has come."""
        return Answer(self.status_code, self.headers, b"".join([part async for part in self.parts]))


class Transport(Protocol):
    """A transport of requests."""

    def stream(self, asking: Asking) -> AbstractAsyncContextManager[StreamedAnswer]:
        """Send one request, and yield its answer as soon as it begins; raise NoAnswer if there is none."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class HttpxTransport:
    """A transport of httpx."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    @asynccontextmanager
    async def stream(self, asking: Asking) -> AsyncIterator[StreamedAnswer]:
        """Send one request, and yield its answer as soon as it begins; raise NoAnswer if there is none."""
        with _as_no_answer():
            answer = await self._inner.handle_async_request(_request(asking))
        try:
            yield StreamedAnswer(answer.status_code, answer.headers, _parts(answer))
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Close the transport of httpx."""
        await self._inner.aclose()


async def _parts(answer: httpx.Response) -> AsyncIterator[bytes]:
    with _as_no_answer():
        async for part in answer.aiter_bytes():
            yield part


def _request(asking: Asking) -> httpx.Request:
    limits = dict.fromkeys(("connect", "read", "write", "pool"), asking.silence)
    return httpx.Request(
        asking.method,
        asking.url,
        headers=asking.headers,
        content=asking.content,
        extensions={"timeout": limits},
    )


@contextmanager
def _as_no_answer() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise NoAnswer(type(error).__name__) from error
