"""Whatever a handler makes: it is saved, or its own step fails and says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from progressor import HandlerFailed, ProcessStatus, Rejected
from tests.bad_input import draws
from tests.bad_input.world import NS, World, a_world, fresh
from tests.model.profiles import profile

KINDS = ("answer", "state", "metadata", "event", "event name", "events", "reject", "details", "raise")


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    with a_world(dsn) as world:
        yield world


@profile(quick=60, deep=2000, steps=1)
@given(
    kind=st.sampled_from(KINDS),
    thing=draws.values | draws.texts | draws.wrong_types | st.lists(draws.values, max_size=3),
)
def test_results(world: World, kind: str, thing: Any) -> None:
    """The caller gets an answer, the rejection, or HandlerFailed; a process that broke can be repaired."""
    token = world.results.keep(thing)

    async def ask(client: Any) -> None:
        one = client.process(NS, fresh())
        await one.start()
        error: str | None = None
        try:
            await one.call("make", [kind, token])
        except Rejected as rejection:
            assert kind in ("reject", "details")
            rejection.reason.encode()
        except HandlerFailed as failure:
            error = failure.error
        process, broken = await one.get(), error is not None
        assert len(error or "") <= 2_000
        assert (process.status is ProcessStatus.ERROR) is broken
        _ = (process.state, process.metadata, process.history)
        trace = await one.trace()
        assert trace[-1].status in ("finished", "error")
        if broken:
            assert process.detail
            await one.simple_repair()
        assert await one.call("give_back", "alive") == {"args": "alive", "context": None}

    outcome = world.run(world.amid_neighbours(ask))
    assert outcome is None, repr(outcome)
