"""The look of a world at all its namespaces: it tells what the backlog of each does, or that it cannot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from psycopg.types.json import Jsonb

from progressor.storage.operations import Storage
from progressor.timers import SetTimer
from tests.storage.test_groups import enter
from tests.storage.test_outbox import notice, send
from tests.storage.test_pauses import rest
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    change_timers,
    hold,
    init,
    request,
    set_timer,
    start,
    wait,
)

NOW = T0 + 5 * SECOND
OTHER = "shop.other"


async def nothing(storage: Storage, tables: Tables) -> None:
    """A namespace without processes."""


async def later(storage: Storage, tables: Tables) -> None:
    await start(storage, "p1", set_timer(9 * SECOND))
    await start(storage, "p2", set_timer(7 * SECOND))


async def due(storage: Storage, tables: Tables) -> None:
    await later(storage, tables)
    await start(storage, "p3", set_timer(SECOND))


async def due_now(storage: Storage, tables: Tables) -> None:
    await start(storage, "p1", set_timer(at=NOW))


async def blocked(storage: Storage, tables: Tables) -> None:
    await due(storage, tables)
    await hold(storage, request("p3"))


async def several(storage: Storage, tables: Tables) -> None:
    """The second timer of a process is not claimable."""
    changes = SetTimer(after=8 * SECOND, name="a"), SetTimer(after=6 * SECOND, name="b")
    await start(storage, "p1", change_timers(*changes))


async def call(storage: Storage, tables: Tables) -> None:
    await later(storage, tables)
    await wait(storage, request("p1", worker_id=None))


async def resting(storage: Storage, tables: Tables) -> None:
    """A process that rests after a step, with a call behind it."""
    await rest(storage, await hold(storage, init()))
    await wait(storage, request())


async def in_group(storage: Storage, tables: Tables) -> None:
    await enter(storage, "p1")


async def paused(storage: Storage, tables: Tables) -> None:
    await due(storage, tables)
    await storage.set_paused(NS, True)


async def rated(storage: Storage, tables: Tables) -> None:
    await due(storage, tables)
    tables.execute("UPDATE namespaces SET options = options || %s WHERE name = %s", Jsonb({"rate": {}}), NS)


SCENES: dict[Callable[[Storage, Tables], Awaitable[None]], bool] = {
    nothing: True,
    later: True,
    due: True,
    due_now: True,
    blocked: True,
    several: True,
    call: False,
    resting: False,
    in_group: False,
    paused: False,
    rated: False,
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_it_tells_what_the_backlog_tells(
    storage: Storage, tables: Tables, scene: Callable[[Storage, Tables], Awaitable[None]]
) -> None:
    """Where it tells anything, nothing but the first timer decides what runs next."""
    tables.set_namespace()
    tables.set_namespace(OTHER)
    await scene(storage, tables)
    told = await storage.next_timers([NS, OTHER])
    assert (told.due[OTHER], told.has_messages) == (None, False)
    assert told.others == ([] if SCENES[scene] else [NS])
    if SCENES[scene]:
        first, known = told.due[NS], await storage.backlog(NS, most=9, now=NOW)
        is_due = first is not None and first <= NOW
        assert (known.calls.tasks, known.timers.tasks) == (0, int(is_due))
        assert (known.paused, known.rests, known.next_room) == (False, None, None)
        assert is_due or known.next_due == (None if first is None else first - NOW)
        assert told._replace(now=NOW).idle.get(NS) == (None if is_due else known)


async def test_it_tells_of_messages_and_of_what_is_unknown(storage: Storage, tables: Tables) -> None:
    """A namespace that nobody has registered is not told of, nor are messages if none is."""
    told = await storage.next_timers(["b", "a"])
    assert (told.due, told.others, told.has_messages, told.idle) == ({}, ["b", "a"], True, {})
    tables.set_namespace()
    await start(storage, "a")
    assert not (await storage.next_timers([NS])).has_messages
    await send(storage, notice())
    assert (await storage.next_timers([NS])).has_messages
