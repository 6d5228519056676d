"""A service as a deployment of its own: entered once, and nothing is left of an entering that failed."""

from __future__ import annotations

from typing import Any

import pytest

from progressor.deployment.standalone import Build, Standalone, scanner_apart, zombie_collector_apart
from progressor.engine import Engine
from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.handlers.namespace import Namespace
from progressor.node.node import Node
from tests.support import NS, Tables, eventually

services = pytest.mark.parametrize("build", [scanner_apart, zombie_collector_apart])


async def no_facts(self: Node) -> dict[str, object]:
    raise StorageUnavailable("nothing is known")


async def nothing_is_left(tables: Tables) -> None:
    assert tables.execute("SELECT * FROM workers") == []
    # A connection that was closed is seen by the server a little later.
    await eventually(
        lambda: (
            not tables.execute(
                "SELECT FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name LIKE 'progressor%%'"
            )
        ),
        "no connection",
    )


@services
async def test_a_service_that_nobody_entered_says_what_to_do(dsn: str, build: Build) -> None:
    """Its client, and its end."""
    service = Standalone(dsn, build)
    with pytest.raises(InvalidRequest, match="enter it, `async with Standalone") as caught:
        _ = service.client
    assert caught.value.field == "service"
    with pytest.raises(InvalidRequest, match="enter it"):
        await service.__aexit__(None, None, None)


@services
async def test_an_entering_that_fails(
    dsn: str, tables: Tables, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs on: no heart, no service, no connection."""
    monkeypatch.setattr(Node, "facts", no_facts)
    with pytest.raises(StorageUnavailable, match="nothing is known"):
        await Standalone(dsn, build).__aenter__()
    await nothing_is_left(tables)


async def test_an_engine_whose_entering_fails(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of an engine."""
    namespace: Any = Namespace(NS)
    monkeypatch.setattr(Node, "facts", no_facts)
    with pytest.raises(StorageUnavailable, match="nothing is known"):
        await Engine(dsn, [namespace]).__aenter__()
    await nothing_is_left(tables)
