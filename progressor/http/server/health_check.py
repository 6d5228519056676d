"""The health of the API and of its database.

Rule: only a caller with the scope admin gets it. Probes, which show no token, never query the database.
"""

from __future__ import annotations

import asyncio

from progressor.client.client import Client
from progressor.client.results import Health
from progressor.http.server.waits import DrainableWaits

_SECONDS = 2.0


class HealthCheck:
    """The health of one server."""

    def __init__(self, client: Client, waits: DrainableWaits) -> None:
        self._client, self._waits = client, waits

    async def now(self) -> Health:
        """Return the health at this moment; raise no error."""
        if self._waits.is_draining:
            return Health(False, "stopping", 0, ())
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._client.health()
        except TimeoutError:
            return Health(False, f"no answer within {_SECONDS:g} s from the database", 0, ())
