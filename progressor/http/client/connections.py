"""Connections of HttpClient to its API, by aiohttp: a request through httpx takes ten times the CPU.

Rule: no request waits for the connection of another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from yarl import URL

from progressor.http.client.exchange import Asking, NoAnswer, StreamedAnswer

_CONNECT_SECONDS = 10.0
# Seconds; shorter than servers and balancers keep an idle connection open.
_KEEP_ALIVE_SECONDS = 30.0


class AiohttpTransport:
    """A transport with as many connections as there are requests under way, each kept for a while."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def stream(self, asking: Asking) -> AsyncIterator[StreamedAnswer]:
        """Send one request, and yield its answer as soon as it begins; raise NoAnswer if there is none."""
        with _as_no_answer():
            async with self._sent(asking) as answer:
                yield StreamedAnswer(answer.status, answer.headers, answer.content.iter_any())

    def _sent(self, asking: Asking) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        session = self._session
        if session is None:
            session = self._session = _session(self._url)
        limits = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=asking.silence)
        return session.request(
            asking.method,
            URL(asking.url, encoded=True),
            data=asking.content,
            headers=asking.headers,
            timeout=limits,
            allow_redirects=False,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


@contextmanager
def _as_no_answer() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswer(type(error).__name__) from error


def _session(url: str) -> aiohttp.ClientSession:
    tls = httpx.create_ssl_context() if url.startswith("https") else True
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=tls),
        proxy=_proxy_for(url),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    # aiohttp would repeat a DELETE or PUT whose connection is lost. It must not, and has no option for it.
    session._retry_connection = False  # noqa: SLF001 - see above
    return session


def _proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for this URL; None for no proxy."""
    parts, proxies = urlsplit(url), getproxies()
    if proxy_bypass(parts.netloc):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")
