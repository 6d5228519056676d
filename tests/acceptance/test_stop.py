"""Stopping an engine: what runs is finished, the rest is handed back."""

import asyncio
from datetime import timedelta

import pytest

from progressor import Engine, HandlerFailed, ProgressorError, ReplyTimeout
from tests.acceptance.conftest import MakeClient, Options
from tests.acceptance.support import NS, Act, Scripted, until, until_events, until_waiting
from tests.support import Tables

QUICK = {
    "lease_age": timedelta(seconds=1.5),
    "heartbeat_interval": timedelta(milliseconds=100),
    "zombie_interval": timedelta(milliseconds=100),
}


async def is_stopping(engine: Engine) -> bool:
    """Whether the engine claims no more; nothing public says so."""
    return not any(pool.is_open for pool in engine.pools.values())


async def test_a_stop_finishes_what_runs(dsn: str, mode: Options, client: MakeClient) -> None:
    """A step under way when the engine stops is finished, saved and answered."""
    scripted, dispatcher = Scripted(), await client()
    engine = Engine(dsn, [scripted.namespace], **mode)
    await engine.__aenter__()
    calling = asyncio.create_task(dispatcher.start(NS, "p", Act(add=1, gate="g", emit="opened")))
    await scripted.gates["g"].entered()
    stopping = asyncio.create_task(engine.stop())
    await until(lambda: is_stopping(engine), lambda stops: stops)
    assert not stopping.done()
    scripted.gates["g"].open()
    await stopping
    assert await calling == 1
    assert (await dispatcher.health()).workers == 0


async def test_a_stop_hands_back_the_rest(
    dsn: str, mode: Options, client: MakeClient, tables: Tables
) -> None:
    """What waits when an engine stops, also behind a step under way, is done by another engine."""
    first, second, dispatcher = Scripted(concurrency=2), Scripted(), await client()
    engine = Engine(dsn, [first.namespace], **mode)
    await engine.__aenter__()
    await dispatcher.start(NS, "p", Act())
    asked = [asyncio.create_task(dispatcher.call(NS, "p", "act", Act(add=1, gate="g", after=0)))]
    await first.gates["g"].entered()
    for number in range(1, 4):
        asked.append(asyncio.create_task(dispatcher.call(NS, "p", "act", Act(add=1))))
        await until_waiting(dispatcher, "p", number)
    stopping = asyncio.create_task(engine.stop())
    await until(lambda: is_stopping(engine), lambda stops: stops)
    first.gates["g"].open()
    await stopping
    assert first.ran == [("p", "init"), ("p", "call")]
    assert tables.execute("SELECT * FROM running") == []
    async with Engine(dsn, [second.namespace], **mode):
        assert await asyncio.gather(*asked) == [1, 2, 3, 4]
        await until_events(dispatcher, "p", "fired")


async def test_a_stop_under_load(dsn: str, mode: Options, client: MakeClient, tables: Tables) -> None:
    """Whoever asks while an engine stops is answered or told; what was accepted is done by the next."""
    scripted, dispatcher = Scripted(concurrency=4), await client()
    keys: dict[str, str] = {}

    async def ask(number: int, inside: Engine) -> None:
        name, key = f"p{number}", f"key-{number}"
        try:
            await inside.client.start(NS, name, Act(add=1, emit="opened"), idempotency_key=key)
            keys[name] = key
        except HandlerFailed:
            raise
        except ProgressorError:
            # Not answered, perhaps accepted: asked again below, under the same key.
            keys[name] = key

    async with Engine(dsn, [scripted.namespace], **mode) as engine:
        asking = [asyncio.create_task(ask(number, engine)) for number in range(60)]
        await until(lambda: dispatcher.search(namespace=NS), lambda page: page.items)
    await asyncio.gather(*asking)
    assert tables.execute("SELECT * FROM running") == []
    async with Engine(dsn, [scripted.namespace], **mode):
        for name, key in keys.items():
            answer = await dispatcher.start(NS, name, Act(add=1, emit="opened"), idempotency_key=key)
            assert answer == 1
            assert (await dispatcher.get(NS, name)).last_event_id == 1
    assert len(keys) == 60


async def test_a_step_that_does_not_end_in_time(dsn: str, mode: Options, client: MakeClient) -> None:
    """A step that outlives stop_grace is given up; under on_zombie=retry another engine runs it again."""
    first, second = Scripted(on_zombie="retry"), Scripted(on_zombie="retry")
    second.gates["g"].open()
    dispatcher = await client()
    engine = Engine(dsn, [first.namespace], stop_grace=timedelta(milliseconds=50), **{**mode, **QUICK})
    await engine.__aenter__()
    starting = asyncio.create_task(dispatcher.start(NS, "p", Act(add=1, gate="g", emit="opened")))
    await first.gates["g"].entered()
    await engine.stop()
    async with Engine(dsn, [second.namespace], **{**mode, **QUICK}):
        assert await starting == 1
        await until_events(dispatcher, "p", "opened")


async def test_callers_inside_a_stopping_engine(dsn: str, mode: Options) -> None:
    """Who waits through the client of an engine that stops gets an error that names the key to ask with."""
    first, act = Scripted(), Act(add=1, gate="g")
    async with Engine(
        dsn, [first.namespace], stop_grace=timedelta(milliseconds=50), **{**mode, **QUICK}
    ) as engine:
        starting = asyncio.create_task(engine.client.start(NS, "p", act, idempotency_key="k"))
        await first.gates["g"].entered()
        # A handler may begin before its request is accepted.
        await until(lambda: engine.client.search(namespace=NS), lambda page: page.items)
    with pytest.raises(ReplyTimeout) as caught:
        await starting
    assert caught.value.idempotency_key == "k"
