"""An engine, a client of its own beside it, and the API over that client, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from progressor import Client, Engine, Namespace
from progressor.http.server.app import make_app
from progressor.http.server.auth.scopes import Access
from progressor.http.server.options import HttpOptions
from tests.http import shop
from tests.open_access import OpenAccess
from tests.support import check_invariants

Serve = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def stack(dsn: str) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack
    check_invariants(dsn)


@pytest.fixture
def serve(dsn: str, stack: AsyncExitStack) -> Serve:
    """`await serve(namespace, …, options=…)`: who asks the API of what an engine serves."""

    async def make(
        *namespaces: Namespace, options: HttpOptions | None = None, access: Access | None = None
    ) -> httpx.AsyncClient:
        engine = Engine(dsn, namespaces, stop_grace=timedelta(seconds=5))
        await stack.enter_async_context(engine)
        client = await stack.enter_async_context(Client(dsn))
        app = make_app(client, access=access or OpenAccess(), options=options)
        return await stack.enter_async_context(asking(app))

    return make


def asking(app: Any, *, host: str = "127.0.0.1") -> httpx.AsyncClient:
    """Who asks this application, from that address."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(host, 123))
    return httpx.AsyncClient(transport=transport, base_url="http://api", timeout=60)


@pytest.fixture
async def api(serve: Serve) -> httpx.AsyncClient:
    """Who asks the API of the shop's orders."""
    return await serve(shop.make())


async def opened(dsn: str, name: str) -> None:
    """Make a namespace known that nobody serves, as if its last worker had left a day ago."""
    async with Engine(dsn, [Namespace(name)]):
        pass
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "UPDATE progressor.namespaces SET updated_at = now() - interval '1 day' WHERE name = %s", [name]
        )
