"""The health of the API and of its database.

Rule: probes, which show no token, cost the database one question a second. That the server stops is known
at once.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from progressor.client.client import Client
from progressor.client.results import Health
from progressor.http.waiting import Waits

_SECONDS = 2.0
_KEPT_SECONDS = 1.0


class HealthCheck:
    """The health of one server."""

    def __init__(self, client: Client, waits: Waits) -> None:
        self._client, self._waits = client, waits
        self._lock = asyncio.Lock()
        self._known: Health | None = None
        self._until = 0.0

    async def now(self) -> Health:
        """The health at this moment."""
        if self._waits.is_draining:
            return Health(False, "stopping", 0, ())
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._client.health()
        except TimeoutError:
            return Health(False, f"no answer within {_SECONDS:g} s from the database", 0, ())

    async def lately(self) -> Health:
        """The health of the last second; many who ask at once cost one question."""
        async with self._lock:
            if self._known is None or self._until < monotonic() or self._waits.is_draining:
                self._known = await self.now()
                self._until = monotonic() + _KEPT_SECONDS
            return self._known
