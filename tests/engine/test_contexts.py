"""Context variables: a handler sees those of its engine, never those of whoever asked."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Literal

import pytest

from progressor import Client, Engine, Namespace, Process
from tests.support import NS

_TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")
_CROWD = 40


def _namespace() -> Namespace:
    """Each handler answers with what it sees."""
    namespace = Namespace(NS, concurrency=2 * _CROWD)

    @namespace.init
    async def init(_process: Process[Any], _args: Any) -> str:
        return _TENANT.get()

    @namespace.call
    async def computes(_process: Process[Any], _args: Any) -> str:
        return _TENANT.get()

    @namespace.call
    async def waits(_process: Process[Any], _args: Any) -> str:
        await asyncio.sleep(0)
        return _TENANT.get()

    @namespace.call
    def blocks(_process: Process[Any], _args: Any) -> str:
        return _TENANT.get()

    return namespace


async def _ask(client: Client, number: int) -> set[str]:
    _TENANT.set(f"tenant {number}")
    process = client.process(NS, f"p{number}")
    return {
        await process.start(),
        *[await process.call(name) for name in ("computes", "waits", "blocks", "computes")],
    }


@pytest.mark.parametrize("fuse", ["learned", "always", "never"])
async def test_a_handler_sees_none_of_its_caller(
    dsn: str, fuse: Literal["learned", "always", "never"]
) -> None:
    """What is asked in one turn by many is run in the context in which the engine was entered."""
    _TENANT.set("the engine's")
    async with Engine(dsn, [_namespace()], fuse=fuse) as engine:
        _TENANT.set("later")
        seen = await asyncio.gather(*(_ask(engine.client, number) for number in range(_CROWD)))
    assert set().union(*seen) == {"the engine's"}


@pytest.mark.parametrize("fuse", ["learned", "always", "never"])
async def test_a_handler_sees_none_of_the_step_before(
    dsn: str, fuse: Literal["learned", "always", "never"]
) -> None:
    """Nor of one that its worker has just run on the same process, for another caller."""
    namespace, begun, others_wait = _namespace(), asyncio.Event(), asyncio.Event()

    @namespace.call
    async def sets(_process: Process[Any], _args: Any) -> str:
        _TENANT.set("the first caller's")
        begun.set()
        await others_wait.wait()
        await asyncio.sleep(0)
        return _TENANT.get()

    async with Engine(dsn, [namespace], fuse=fuse) as engine:
        process = engine.client.process(NS, "p1")
        await process.start()
        first = await process.submit_call("sets")
        await begun.wait()
        others = [await process.submit_call(name) for name in ("computes", "waits", "blocks", "computes")]
        others_wait.set()
        assert await process.result(first.task_id) == "the first caller's"
        assert [await process.result(other.task_id) for other in others] == ["nobody"] * 4


async def test_a_handler_sees_none_of_who_calls_from_a_handler(dsn: str) -> None:
    """Nor of the step in which the other process is called."""
    asks, answers = Namespace("test.asks", concurrency=4), _namespace()

    @asks.init
    async def ask(process: Process[Any], _args: Any) -> str:
        _TENANT.set("who asks")
        answer: str = await engine.client.start(NS, process.process_id)
        return answer

    async with Engine(dsn, [asks, answers]) as engine:
        assert await engine.client.start("test.asks", "p1") == "nobody"


async def test_a_client_keeps_nothing_of_its_first_caller(dsn: str) -> None:
    """What it runs in the background is not in the context of the request that made it connect."""
    seen: list[str] = []
    client = Client(dsn)
    announce = client._node.replies.hint

    def hint(*args: Any) -> None:
        seen.append(_TENANT.get())
        announce(*args)

    async with Engine(dsn, [_namespace()]):
        assert client._node.signals is not None
        client._node.signals._on_replies = hint
        assert len(await asyncio.create_task(_ask(client, 1))) == 1
    await client.close()
    assert set(seen) == {"nobody"}
