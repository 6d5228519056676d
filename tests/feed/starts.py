"""Where the readers of these tests begin, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from progressor import Client

FIRST = datetime(2000, 1, 1, tzinfo=UTC)
"""A moment before all that the feed has."""


def first_look(client: Client, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Return a wait for the first look of a reader of this client: where it begins is known then."""
    looked, storage = asyncio.Event(), client._node.storage
    read = storage.read_feed

    async def noted(*args: Any, **kwargs: Any) -> Any:
        part = await read(*args, **kwargs)
        looked.set()
        return part

    async def has_looked() -> None:
        async with asyncio.timeout(30):
            await looked.wait()

    monkeypatch.setattr(storage, "read_feed", noted)
    return has_looked
