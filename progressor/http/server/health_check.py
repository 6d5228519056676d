"""The health of the API and of its database.

Rule: whoever asks for it has shown a token. Probes, which show none, cost the database no question.
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
        """The health at this moment."""
        if self._waits.is_draining:
            return Health(False, "stopping", 0, ())
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._client.health()
        except TimeoutError:
            return Health(False, f"no answer within {_SECONDS:g} s from the database", 0, ())
