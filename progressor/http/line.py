"""The way of HttpClient to its API: a request is sent until there is an answer, or no patience left.

Rule: what did not get through, and what the API cannot take just now, is sent again. What must not be
repeated is sent once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from progressor.client.asking import seconds_of
from progressor.client.requesting import Timeout
from progressor.errors import StorageUnavailable
from progressor.http.answers import error_of, is_accepted
from progressor.http.patience import Patience

# Beyond what the server was asked to wait.
_TRANSPORT_SECONDS = 10.0
# Not now, or not whole; what was asked is safe to repeat.
_NOT_NOW = frozenset({408, 429, 502, 503, 504})


class Line:
    """To one API, with one token."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout: Timeout,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._patience = timedelta(seconds=seconds_of(timeout, timedelta(seconds=60)))
        self.http = httpx.AsyncClient(
            base_url=url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            timeout=_TRANSPORT_SECONDS,
            transport=transport,
        )

    def patience(self, timeout: Timeout = None) -> Patience:
        """That of a request which begins now."""
        return Patience(seconds_of(timeout, self._patience))

    async def once(self, method: str, url: str, **request: Any) -> httpx.Response:
        """The answer, of what cannot be repeated safely; its error raised."""
        return await self.send(method, url, Patience(0.0), **request)

    async def send(
        self,
        method: str,
        url: str,
        patience: Patience | None = None,
        *,
        waits: bool = False,
        headers: dict[str, str] | None = None,
        **request: Any,
    ) -> httpx.Response:
        """The answer; its error raised, but for the answer of a request that was accepted.

        `waits`: the API is to wait for it.
        """
        patience = patience or self.patience()
        while True:
            wait = patience.wait if waits else 0
            said = {**(headers or {}), **({"Prefer": f"wait={wait}"} if waits else {})}
            why: Exception
            try:
                answer = await self.http.request(
                    method, url, timeout=wait + _TRANSPORT_SECONDS, headers=said, **request
                )
            except httpx.TransportError as error:
                why = StorageUnavailable(f"the API cannot be reached ({type(error).__name__})")
            else:
                may_change = answer.status_code in _NOT_NOW
                if answer.is_success or (is_accepted(answer) and not may_change):
                    return answer
                why = error_of(answer)
                if not may_change:
                    raise why
            if not await patience.pause():
                raise why from None
