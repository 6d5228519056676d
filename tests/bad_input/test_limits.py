"""The limits: too large is refused by name before anything is written, or is the failure of its step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from progressor import HandlerFailed, InvalidRequest, ProcessStatus
from progressor.config import ConnectionOptions, EngineOptions
from progressor.model import Event
from progressor.storage import group_commit
from progressor.storage.group_commit import (
    MAX_BATCH_BYTES,
    Batcher,
    batch_requests,
    batch_steps,
    by_process,
)
from progressor.storage.operations import Storage
from tests.bad_input.draws import nested
from tests.bad_input.world import NS, World, a_world, fresh
from tests.support import held, init, resume

TEN_MB = "x" * 10_000_000
LIMITS = EngineOptions()


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    with a_world(dsn) as world:
        yield world


REQUESTS: list[tuple[str, str, Any]] = [
    ("args", "max_value_bytes", lambda c: c.start(NS, "p", TEN_MB)),
    ("args", "max_value_bytes", lambda c: c.call(NS, "there", "give_back", TEN_MB)),
    ("args", "max_value_bytes", lambda c: c.notify(NS, "there", "give_back", b"x" * 10_000_000)),
    ("args", "max_value_bytes", lambda c: c.repair(NS, "there", TEN_MB)),
    ("context", "max_value_bytes", lambda c: c.start(NS, "p", context=TEN_MB)),
    ("context", "max_value_bytes", lambda c: c.simple_repair(NS, "there", context=TEN_MB)),
    ("metadata", "max_metadata_bytes", lambda c: c.start(NS, "p", metadata={"k": "x" * 65_536})),
    ("state", "max_value_bytes", lambda c: c.put(NS, "p", state=TEN_MB)),
    ("metadata", "max_metadata_bytes", lambda c: c.put(NS, "p", metadata={"k": "x" * 65_536})),
    ("events[1]", "max_value_bytes", lambda c: c.put(NS, "p", events=[{"a": 1}, {"a": TEN_MB}])),
    (
        "events[0]",
        "max_metadata_bytes",
        lambda c: c.put(NS, "p", events=[{"payload": 1, "metadata": {"k": "x" * 65_536}}]),
    ),
    ("events", "max_events_bytes", lambda c: c.put(NS, "p", events=[{"a": TEN_MB[:8_000_000]}] * 9)),
    (
        "events",
        "max_events_bytes",
        lambda c: c.put(NS, "p", events=[{"payload": 1, "metadata": {"k": "x" * 65_000}}] * 1_100),
    ),
    ("args", "read again", lambda c: c.start(NS, "p", nested(201))),
    ("args", "no JSON form", lambda c: c.start(NS, "p", nested(300))),
    ("args", "read again", lambda c: c.start(NS, "p", 10**4300)),
    ("metadata", "read again", lambda c: c.start(NS, "p", metadata={"n": 10**4300})),
]


@pytest.mark.parametrize(("field", "says", "ask"), REQUESTS, ids=range(len(REQUESTS)))
def test_too_large_a_request(world: World, field: str, says: str, ask: Any) -> None:
    """It names the field and the limit, and nothing is written."""

    async def among_others(client: Any) -> Any:
        await client.start(NS, "there")
        try:
            return await ask(client)
        finally:
            assert len(await client.trace(NS, "there")) == 1

    outcome = world.run(world.amid_neighbours(among_others))
    assert isinstance(outcome, InvalidRequest), repr(outcome)
    assert (outcome.field or "").startswith(field)
    assert says in str(outcome)


RESULTS: list[tuple[str, str, Any]] = [
    ("answer", "max_value_bytes", TEN_MB),
    ("state", "max_value_bytes", TEN_MB),
    ("event", "max_value_bytes", TEN_MB),
    ("metadata", "max_metadata_bytes", "x" * 65_536),
    ("details", "max_metadata_bytes", "x" * 65_536),
    ("events", "max_step_events", [1] * (LIMITS.max_step_events + 1)),
    ("events", "max_events_bytes", [TEN_MB[:8_000_000]] * 9),
    ("answer", "read again", nested(201)),
    ("answer", "read again", 10**4300),
]


@pytest.mark.parametrize(("kind", "says", "thing"), RESULTS, ids=range(len(RESULTS)))
def test_too_large_a_result(world: World, kind: str, says: str, thing: Any) -> None:
    """The step fails and names the limit; nothing of it is saved; the process can be repaired."""
    token = world.results.keep(thing)

    async def ask(client: Any) -> None:
        one = client.process(NS, fresh())
        await one.start()
        with pytest.raises(HandlerFailed, match=says):
            await one.call("make", [kind, token])
        process = await one.get()
        assert process.status is ProcessStatus.ERROR
        assert (process.state, process.metadata, process.history) == (0, {}, ())
        await one.simple_repair()
        assert await one.call("give_back", 1) == {"args": 1, "context": None}

    outcome = world.run(world.amid_neighbours(ask))
    assert outcome is None, repr(outcome)


def test_just_within_the_limits(world: World) -> None:
    """What is as large as may be goes through, up to the last byte."""
    most = LIMITS.max_value_bytes - 2  # the quotes

    async def ask(client: Any) -> None:
        one = client.process(NS, fresh())
        assert await one.start("x" * most) == "x" * most
        await one.call("keep", "y" * (most - 20))
        assert len((await one.get()).state) == most - 20
        assert await one.call("give_back", nested(190)) == {"args": nested(190), "context": None}

    outcome = world.run(world.amid_neighbours(ask))
    assert outcome is None, repr(outcome)


def test_larger_limits(dsn: str) -> None:
    """Limits are settings: raised, 10 MB go round, in requests and results."""
    raised = {"max_value_bytes": 32 << 20, "max_metadata_bytes": 1 << 20}
    with a_world(dsn, **raised) as world:

        async def ask(client: Any) -> None:
            one = client.process(NS, fresh())
            big = {"k": "x" * 500_000}
            assert await one.start(TEN_MB, metadata=big, context=TEN_MB) == TEN_MB
            await one.call("keep", TEN_MB)
            process = await one.get()
            assert (process.state, process.metadata) == (TEN_MB, big)
            assert process.history[0].payload == {"value": TEN_MB}

        outcome = world.run(world.amid_neighbours(ask))
        assert outcome is None, repr(outcome)


def test_many_large_requests_at_once(world: World) -> None:
    """Large requests travel together as far as one message carries them, and the small ones with them."""
    size = 3 << 20

    async def ask(client: Any) -> list[int]:
        ids = [fresh() for _ in range(12)]
        await asyncio.gather(*(client.start(NS, each) for each in ids))
        await asyncio.gather(*(client.call(NS, each, "keep", "x" * size) for each in ids))
        return [len((await client.get(NS, each, range=None)).state) for each in ids]

    assert world.run(world.amid_neighbours(ask)) == [size] * 12


async def test_a_batch_is_bounded_in_bytes() -> None:
    """A batch ends before the item that would make it too large; the order of the items stays."""
    batches: list[list[int]] = []

    async def run(items: Any) -> list[int]:
        batches.append(list(items))
        return list(items)

    batcher: Batcher[int, int] = Batcher("prepare_call", run, lambda item: item, lambda item: item)
    sizes = [1, 2, MAX_BATCH_BYTES, 3, MAX_BATCH_BYTES - 3, 5]
    assert await asyncio.gather(*map(batcher.submit, sizes)) == sizes
    assert batches == [sizes[:2], sizes[2:3], sizes[3:5], sizes[5:]]


@pytest.mark.parametrize("name", ["max_value_bytes", "max_metadata_bytes", "max_events_bytes"])
def test_limits_have_bounds(name: str) -> None:
    """A limit above what PostgreSQL takes in one message is refused."""
    for value in (0, 1 << 30):
        with pytest.raises(InvalidRequest) as caught:
            ConnectionOptions(**{name: value})
        assert caught.value.field == name


def test_a_long_name_is_no_way_around() -> None:
    """Only a name as short as the typed layer allows needs no look at its size."""
    with pytest.raises(InvalidRequest, match="max_metadata_bytes"):
        LIMITS.check_events("events", [Event(b"1", {"name": "x" * 65_536})])


async def test_metadata_counts_in_a_batch(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What travels beside the values is as heavy as they are."""
    monkeypatch.setattr(group_commit, "MAX_BATCH_BYTES", 1_000)
    batches: list[int] = []
    for verb in ("prepare_init", "save_result"):
        monkeypatch.setattr(storage, verb, _counted(getattr(storage, verb), batches))
    inits, ends = (
        batch_requests(
            "prepare_init",
            storage.prepare_init,
            by=by_process,
            run_again=partial(storage.prepare_init, tried=True),
        ),
        batch_steps(storage),
    )
    heavy = {"name": "x" * 1_000}
    made = [init(f"p{place}", process_metadata=heavy) for place in range(3)]
    steps = [held(each) for each in await asyncio.gather(*map(inits.submit, made))]
    assert batches == [1, 1, 1]
    batches.clear()
    decisions = [resume(metadata=heavy), resume(events=(Event(b"1", heavy),)), resume()]
    saved = [ends.submit(step.step(d)) for step, d in zip(steps, decisions, strict=True)]
    await asyncio.gather(*saved)
    assert batches == [1, 1, 1]
    await inits.stop()
    await ends.stop()


def _counted(run: Any, batches: list[int]) -> Any:
    async def counted(items: Any, **options: Any) -> Any:
        batches.append(len(items))
        return await run(items, **options)

    return counted
