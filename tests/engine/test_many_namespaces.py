"""Many namespaces in one engine: what its start does of each, and what they share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from progressor.engine import Engine
from progressor.handlers.namespace import Namespace
from progressor.worker.pool import Pool
from progressor.worker.worker import Worker
from tests.engine.test_standalone import nothing_is_left
from tests.support import Tables

MANY = 120


def many() -> list[Namespace[Any]]:
    return [Namespace(f"tenant.{number}") for number in range(MANY)]


@contextmanager
def turns_counted() -> Iterator[list[None]]:
    """The turns of the loop so far."""
    turns: list[None] = []
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal handle
        turns.append(None)
        handle = loop.call_soon(turn)

    handle = loop.call_soon(turn)
    yield turns
    handle.cancel()


async def test_the_loop_turns_between_two_namespaces(dsn: str) -> None:
    """While an engine starts: listeners and callers of the same loop are served meanwhile."""
    made, started = list[int](), list[int]()

    class Noting(Pool):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(len(turns))

        def start(self) -> None:
            super().start()
            started.append(len(turns))

    class Engines(Engine):
        _pool_type = Noting

    with turns_counted() as turns:
        async with Engines(dsn, many()):
            pass
    assert len(set(made)) == MANY
    assert max(Counter(started).values()) == 100


async def test_codecs_are_listed_once(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers of an engine share the list of the others' codecs: it is as long as they are many."""
    lists = set[int]()

    class Noting(Worker):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            lists.add(id(options["wires"]))

    monkeypatch.setattr(Engine, "_worker_type", Noting)
    async with Engine(dsn, many()) as engine:
        assert len(engine.pools) == MANY
    assert len(lists) == 1


async def test_a_start_that_is_cancelled_between_two_namespaces(dsn: str, tables: Tables) -> None:
    """The engine leaves nothing, neither of the pools that began nor of the others."""

    class Cancelling(Pool):
        def start(self) -> None:
            super().start()
            entering.cancel()

    class Engines(Engine):
        _pool_type = Cancelling

    entering = asyncio.create_task(Engines(dsn, many()).__aenter__())
    with suppress(asyncio.CancelledError):
        await entering
    assert entering.cancelled()
    await nothing_is_left(tables)
