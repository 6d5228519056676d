"""The way of HttpClient to its API: a request is sent until there is an answer, or no patience left.

Rule: a request that did not get through, or that the API cannot take just now, is sent again. A request
that must not be repeated is sent once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import httpx

from progressor.acts import reason_of_block
from progressor.client.asks import Timeout
from progressor.errors import InvalidRequest, RequestLost, StorageUnavailable
from progressor.http.client.decode import error_of, is_accepted
from progressor.http.client.exchange import Answer, Asking, HttpxTransport, NoAnswer, Transport
from progressor.http.client.retry import RetryBudget
from progressor.http.wire.headers import REASON, TRACEPARENT, TRACESTATE, shown_reason
from progressor.inputs import check_seconds
from progressor.spans.in_use import current_trace
from progressor.trace_context import traceparent_of, tracestate_of

# Seconds of silence that a server may have, beyond those that it was asked to wait.
_TRANSPORT_SECONDS = 10.0
# Seconds beyond the patience; the answer of a server that waited as long as it was asked to is on its way.
_BEYOND_SECONDS = 2.0
# Statuses of an API that cannot answer now; such a request is safe to repeat.
_NOT_NOW = frozenset({408, 429, 502, 503, 504})


class RetryingTransport:
    """The way to one API, with one token; it repeats requests."""

    def __init__(
        self, url: str, *, token: str | None, timeout: Timeout, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self._patience = 60.0 if timeout is None else check_seconds("timeout", timeout)
        self._url = _checked(url)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._transport = _own_transport(self._url) if transport is None else HttpxTransport(transport)
        self.is_closed = False
        # Those that wait for the next part of a stream.
        self._waits: set[asyncio.Timeout] = set()

    async def close(self) -> None:
        """Close the connections, and end the streams."""
        self.is_closed = True
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(asyncio.get_running_loop().time())
        await self._transport.aclose()

    def patience(self, timeout: Timeout = None) -> RetryBudget:
        """Return the patience of a request that begins now; None: that of the client."""
        return RetryBudget(self._patience if timeout is None else check_seconds("timeout", timeout))

    async def once(self, method: str, url: str, **request: Any) -> Answer:
        """Send a request that cannot be repeated safely, once, and return its answer or raise its error."""
        seconds = self._patience
        answer = await self.exchange(method, url, seconds, within=seconds, **request)
        if not answer.is_success:
            raise error_of(answer)
        return answer

    async def send(
        self,
        method: str,
        url: str,
        patience: RetryBudget | None = None,
        *,
        waits: bool = False,
        headers: dict[str, str] | None = None,
        **request: Any,
    ) -> Answer:
        """Send a request until it is answered, and return the answer; raise the error of a problem.

        The answer of a request that was accepted is returned even if it is a problem. `waits`: ask the API
        to wait for the answer, with `Prefer: wait`.
        """
        patience = patience or self.patience()
        while True:
            wait = patience.wait if waits else 0
            said = {**(headers or {}), **({"Prefer": f"wait={wait}"} if waits else {})}
            within = max(wait, patience.left) + _BEYOND_SECONDS
            why: Exception
            try:
                answer = await self.exchange(
                    method, url, wait + _TRANSPORT_SECONDS, within=within, headers=said, **request
                )
            except StorageUnavailable as error:
                why = error
            else:
                if answer.is_success:
                    return answer
                why = error_of(answer)
                # A lost request stays lost until it is sent anew, and its caller decides about that.
                may_change = answer.status_code in _NOT_NOW and not isinstance(why, RequestLost)
                if is_accepted(answer) and not may_change:
                    return answer
                if not may_change:
                    raise why
            if self.is_closed or not await patience.pause():
                raise why from None

    async def exchange(
        self,
        method: str,
        url: str,
        silence: float,
        *,
        within: float,
        headers: dict[str, str] | None = None,
        params: dict[str, Any] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """Send one request, and return its answer; raise StorageUnavailable if there is none in time.

        `within` bounds all of it; the API may send nothing for at most `silence`. Both are in seconds.
        """
        asking = self._asking(method, url, silence, headers=headers, params=params, content=content)
        try:
            async with asyncio.timeout(within), self._transport.stream(asking) as answer:
                return await answer.whole()
        except (NoAnswer, TimeoutError) as error:
            raise _unreachable(error) from None

    @asynccontextmanager
    async def stream(
        self, url: str, silence: float, *, headers: dict[str, str], params: Mapping[str, Any]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send one request, and yield the parts of its answer as they come; raise the error of a problem.

        The API may send nothing for at most `silence` seconds: then, and if the answer is lost, raise
        StorageUnavailable.
        """
        asking = self._asking("GET", url, silence, headers=headers, params=params)
        try:
            async with self._transport.stream(asking) as answer:
                if answer.status_code != HTTPStatus.OK:
                    raise error_of(await answer.whole())
                yield self._until_closed(answer.parts)
        except (NoAnswer, TimeoutError) as error:
            raise (_closed() if self.is_closed else _unreachable(error)) from None

    async def _until_closed(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield parts; raise TimeoutError once the client is closed, which need not end a wait for one."""
        while not self.is_closed:
            async with asyncio.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    part = await anext(parts)
                except StopAsyncIteration:
                    return
                finally:
                    self._waits.discard(wait)
            yield part
        raise TimeoutError

    def _asking(
        self,
        method: str,
        url: str,
        silence: float,
        *,
        headers: dict[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> Asking:
        if self.is_closed:
            raise _closed()
        given = {name: value for name, value in (params or {}).items() if value is not None}
        query = f"?{urlencode(given, doseq=True)}" if given else ""
        whole = {**self._headers, **_reason(method), **_trace(), **(headers or {})}
        return Asking(method, f"{self._url}{url}{query}", whole, content, silence)


def _closed() -> StorageUnavailable:
    return StorageUnavailable("the client is closed")


def _unreachable(error: Exception) -> StorageUnavailable:
    if isinstance(error, TimeoutError):
        return StorageUnavailable("the API has not answered in time")
    reason = str(error) or type(error).__name__
    return StorageUnavailable(f"the API cannot be reached ({reason})")


def _reason(method: str) -> dict[str, str]:
    """Return the header with the reason of the `acting` around a request that may change something."""
    reason = None if method == "GET" else reason_of_block()
    return {} if reason is None else {REASON: shown_reason(reason)}


def _trace() -> dict[str, str]:
    """Return the headers with the trace context of the code that asks."""
    trace = current_trace()
    if trace is None:
        return {}
    state = tracestate_of(trace)
    return {TRACEPARENT: traceparent_of(trace), **({} if state is None else {TRACESTATE: state})}


def _own_transport(url: str) -> Transport:
    # A client with a transport of httpx never loads aiohttp.
    from progressor.http.client.connections import AiohttpTransport  # noqa: PLC0415 - see above

    return AiohttpTransport(url)


def _checked(url: str) -> str:
    """Return the address of an API without a slash at its end; raise InvalidRequest if it is none."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise InvalidRequest(f"url is no URL: {error}", field="url") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise InvalidRequest("url must begin with http:// or https:// and name a host", field="url")
    return str(found).rstrip("/")
