"""The application of the workers: `progressor worker parcel_service.app:app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from progressor import App

from .carrier import Carrier
from .claims import claims
from .parcels import parcels


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[dict[str, Any]]:
    url = os.environ.get("CARRIER_URL", "http://localhost:9001")
    async with httpx.AsyncClient(base_url=url, timeout=10) as http:
        yield {"carrier": Carrier(http)}


app = App([parcels, claims], lifespan=lifespan)
