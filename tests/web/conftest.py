"""Consoles without a socket, over a database in which there is something of everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any

import pytest

from progressor import (
    Client,
    Engine,
    FeedEvent,
    HandlerFailed,
    Namespace,
    NonRetryable,
    RetryPolicy,
)
from progressor.acts import acting
from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.web.app import make_console
from tests.acceptance.support import until
from tests.conftest import Databases
from tests.open_access import OpenAccess
from tests.support import check_invariants
from tests.web.operators import Operator
from tests.web.orders import HIDDEN, IDLE, SEEN, made, scheduled
from tests.web.reading import Browser

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), max_attempts=1)
# Texts of what callers of `a.*` must not see.
MARK = "secret-of-b-"


class World:
    """A database in which there is something of everything, a client of it, and browsers on its console."""

    def __init__(self, dsn: str, client: Client, stack: AsyncExitStack) -> None:
        self.dsn, self.client, self._stack = dsn, client, stack

    @property
    def guarded(self) -> Any:
        """The console as it is on a public address."""
        return make_console(self.client, access=Authenticator(self.client.tokens, AccessOptions()))

    async def browser(self, app: Any = None, **options: Any) -> Browser:
        """A browser on this console; by default on one where everybody may do everything."""
        app = app or make_console(self.client, access=OpenAccess())
        return await self._stack.enter_async_context(Browser(app, **options))

    async def token(self, *scopes: str, namespaces: Sequence[str] = ("*",)) -> str:
        """The text of a new token."""
        _, bearer = await self.client.tokens.create(
            "test", scopes=scopes, namespaces=namespaces, lifetime=None
        )
        return bearer.text

    async def caller(
        self, *scopes: str, namespaces: Sequence[str] = ("*",), app: Any = None, **options: Any
    ) -> Browser:
        """A browser of a caller with a token of these rights."""
        token = await self.token(*scopes, namespaces=namespaces)
        return await self.browser(app or self.guarded, token=token, **options)


class Refusing:
    """A sink that refuses all."""

    async def send(self, events: Sequence[FeedEvent]) -> None:
        raise NonRetryable("the sink refuses it")

    async def close(self) -> None:
        """Nothing is open."""


async def _parked(client: Client) -> None:
    task = asyncio.create_task(
        client.forward(
            "books", Refusing(), start="beginning", retries=QUICK, on_failure="park", namespaces=[SEEN]
        )
    )
    try:
        await until(client.parked, bool)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _populated(client: Client, name: str, mark: str) -> None:
    """Orders that run, that are broken, and that wait; a bulk, and an act of an operator."""
    for number in (1, 2, 3):
        await client.start(name, f"{mark}order-{number}", {"item": f"{mark}tea-{number}"})
    await client.call(name, f"{mark}order-1", "pay", {"amount": 5})
    await client.call(name, f"{mark}order-1", "echo", {"asked": f"{mark}args"})
    for number in (2, 3):
        with suppress(HandlerFailed):
            await client.call(name, f"{mark}order-{number}", "break", f"of order {number}")
    await client.repair_all(name, simple=True, handler=f"call {mark}nothing")
    with acting(f"{mark}anna", reason=f"{mark}because"):
        await client.simple_repair(name, f"{mark}order-3")


async def _begun(client: Client) -> None:
    """A process of a paused namespace, whose init waits."""
    await client.pause(IDLE, "for the test")
    task = asyncio.create_task(client.start(IDLE, "begins", {"item": "tea"}))
    await until(lambda: client.search(namespace=IDLE), lambda page: page.items)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def populate(client: Client) -> None:
    """Put something of everything into the database."""
    await _populated(client, SEEN, "")
    await _populated(client, HIDDEN, MARK)
    await _begun(client)
    await _parked(client)


def namespaces() -> list[Namespace[Any]]:
    """All that an engine serves here."""
    return [scheduled(SEEN, "nightly"), scheduled(HIDDEN, f"{MARK}nightly", mark=MARK), made(IDLE)]


def engine_on(dsn: str) -> Engine:
    """An engine of these namespaces."""
    return Engine(dsn, namespaces(), stop_grace=timedelta(seconds=5))


@pytest.fixture(scope="session")
def populated(databases: Databases, template: str) -> Iterator[str]:
    """The name of a database to copy, in which there is something of everything."""
    name = databases.make(template)

    async def fill() -> None:
        async with engine_on(databases.dsn(name)) as engine:
            await populate(engine.client)

    with ThreadPoolExecutor(1) as threads:  # with a loop of its own
        threads.submit(asyncio.run, fill()).result()
    yield name
    databases.drop(name)


@pytest.fixture
def dsn(databases: Databases, populated: str) -> Iterator[str]:
    """A fresh database with something of everything."""
    name = databases.make(populated)
    yield databases.dsn(name)
    databases.drop(name)


@pytest.fixture
async def stack(dsn: str) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack
    check_invariants(dsn)


@pytest.fixture
async def world(dsn: str, stack: AsyncExitStack) -> World:
    """Served by nobody: nothing moves by itself."""
    return World(dsn, await stack.enter_async_context(Client(dsn)), stack)


@pytest.fixture
async def served(world: World, stack: AsyncExitStack) -> World:
    """Served by an engine."""
    await stack.enter_async_context(engine_on(world.dsn))
    return world


@pytest.fixture
async def operator(served: World) -> Operator:
    """Somebody who may do everything, where an engine serves."""
    return await Operator.of(served)
