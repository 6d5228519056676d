"""Engines and clients for the acceptance tests, each of which runs with signals and by scanning alone.

What asks its own engine runs once more with all its requests behind their locks that can be.

Rule: only what `progressor` exports is used; that the tables' invariants hold is checked at the end.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, Engine, Namespace
from tests.support import check_invariants

Options = dict[str, Any]
MakeEngine = Callable[..., Awaitable[Engine]]
MakeClient = Callable[..., Awaitable[Client]]

MODES: dict[str, Options] = {
    "signals": {},
    "scanning": {
        "signals": False,
        "scan_interval": timedelta(milliseconds=90),
        "reply_poll_interval": timedelta(milliseconds=20),
    },
}
_ALL_MODES = {
    "signals": MODES["signals"],
    "scanning": {**MODES["scanning"], "fuse": "never"},
    "fused": {**MODES["signals"], "fuse": "always"},
}
_ENGINE_ONLY = ("scan_interval", "fuse")


def of_a_client(options: Options) -> Options:
    """Those of them that a client of its own has too."""
    return {name: value for name, value in options.items() if name not in _ENGINE_ONLY}


@pytest.fixture(params=_ALL_MODES)
def mode(request: pytest.FixtureRequest) -> Options:
    """The options that switch signals on or off, and what runs behind its lock: as it is learned, never or
    always, for requests of the engine's own client and for those that it claims."""
    return _ALL_MODES[request.param]


@pytest.fixture(params=["inside", "outside"])
def side(request: pytest.FixtureRequest) -> str:
    """Whether requests come from the engine's own client, or from one that shares nothing with it."""
    return request.param


@pytest.fixture
async def stack(dsn: str) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack
    check_invariants(dsn)


@pytest.fixture
def engine(dsn: str, mode: Options, stack: AsyncExitStack) -> MakeEngine:
    """`await engine(namespace, …, option=…)`: a running engine, stopped after the test."""

    async def make(*namespaces: Namespace, **options: Any) -> Engine:
        chosen = {"stop_grace": timedelta(seconds=5), **mode, **options}
        return await stack.enter_async_context(Engine(dsn, namespaces, **chosen))

    return make


@pytest.fixture
def client(dsn: str, mode: Options, stack: AsyncExitStack) -> MakeClient:
    """`await client(namespace, …, option=…)`: a client with connections of its own."""

    async def make(*namespaces: Namespace, **options: Any) -> Client:
        return await stack.enter_async_context(Client(dsn, namespaces, **of_a_client(mode) | options))

    return make


@pytest.fixture
def serve(engine: MakeEngine, client: MakeClient, side: str) -> MakeClient:
    """`await serve(namespace, …)`: a client of a running engine, from inside or outside of it."""

    async def make(*namespaces: Namespace, **options: Any) -> Client:
        running = await engine(*namespaces, **options)
        return running.client if side == "inside" else await client(*namespaces)

    return make
