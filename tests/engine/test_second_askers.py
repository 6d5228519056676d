"""Who asks under a key that is in flight hears of its answer by a hint, whoever asked first."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from progressor import Client, Engine
from tests.acceptance.support import NS, Act, Scripted
from tests.support import eventually

# Nobody is answered by the poll.
SLOW = {"reply_poll_interval": timedelta(hours=1)}
KEY = "once"


async def call(client: Client) -> int:
    answer: int = await client.call(NS, "p", "act", Act(add=1, gate="g"), idempotency_key=KEY, timeout=30)
    return answer


async def following(client: Client) -> None:
    """Return when this client listens for a task of another one, and has looked at it since."""
    signals = client._node.signals
    assert signals is not None
    await eventually(lambda: bool(signals._follows), "it follows")
    await eventually(lambda: not signals._outgoing.messages(), "all hints are sent")


@pytest.mark.parametrize("first_is", ["elsewhere", "in the engine", "gone"])
async def test_a_second_asker_is_hinted(dsn: str, first_is: str) -> None:
    """Both asked for the same task: both are told when it ends, also if the first died since."""
    scripted = Scripted()
    async with (
        Engine(dsn, [scripted.namespace], **SLOW) as engine,
        Client(dsn, **SLOW) as elsewhere,
        Client(dsn, **SLOW) as second,
    ):
        await engine.client.start(NS, "p", Act())
        first = asyncio.create_task(call(engine.client if first_is == "in the engine" else elsewhere))
        await scripted.gates["g"].entered()
        if first_is == "gone":
            await elsewhere.close()
            await asyncio.gather(first, return_exceptions=True)
        asking = asyncio.create_task(call(second))
        await following(second)
        scripted.gates["g"].open()
        async with asyncio.timeout(15):
            assert await asking == 1
            assert first_is == "gone" or await first == 1
        signals = second._node.signals
        assert signals is not None
        assert not signals._follows


async def test_who_asks_for_the_result_is_hinted(dsn: str) -> None:
    """By the task's number and fingerprint: what somebody else asked for and waits for."""
    scripted = Scripted()
    async with (
        Engine(dsn, [scripted.namespace], **SLOW) as engine,
        Client(dsn, **SLOW) as first,
        Client(dsn, **SLOW) as second,
    ):
        await engine.client.start(NS, "p", Act())
        receipt = await first.submit_call(NS, "p", "act", Act(add=1, gate="g"))
        asking = asyncio.create_task(
            second.result(NS, "p", receipt.task_id, fingerprint=receipt.fingerprint, timeout=30)
        )
        await scripted.gates["g"].entered()
        await following(second)
        scripted.gates["g"].open()
        async with asyncio.timeout(15):
            assert await asking == 1


async def test_a_follower_that_comes_late(dsn: str) -> None:
    """Who begins to follow when the task has ended is told to look at once."""
    heard: list[int] = []
    async with Client(dsn) as first, Client(dsn) as second:
        signals = second._node.signals
        assert signals is not None
        signals._on_replies = heard.extend
        signals.follow(first._node.node_id, 7)
        # Once by itself, as it listens now, and once as the first asker says that it does not wait.
        await eventually(lambda: heard == [7, 7], "both hints are heard")
        signals.unfollow(first._node.node_id, 7)
        assert not signals._follows
