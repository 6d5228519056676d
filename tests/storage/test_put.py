"""put: a process is imported as it is, with its history and its timer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from progressor.model import Event, ProcessStatus, TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import Import
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    claim_timers,
    events,
    hold,
    init,
    number,
    repair,
    request,
    resume,
    save,
    start,
)


def imported(process_id: str = "p1", **fields: object) -> Import:
    return Import(NS, process_id, f"put-{number()}", **fields)  # type: ignore[arg-type]


async def test_bare(storage: Storage, tables: Tables) -> None:
    """The least that can be put is an id: a running process without state, events and timer."""
    assert await storage.put(imported(), now=T0)
    row = tables.process()
    assert row is not None
    assert (row["status"], row["previous_status"], row["created_at"]) == ("running", None, T0)
    assert (row["aux_state"], row["metadata"], row["last_event_id"]) == (None, {}, 0)
    assert tables.outline() == [("init", "finished")]
    await hold(storage, request())


async def test_with_everything(storage: Storage, tables: Tables) -> None:
    """State, metadata and events arrive as they are; the next step goes on from there."""
    history = (
        Event(b"\x00one", {"name": "opened"}, timestamp=T0 - timedelta(days=900)),
        Event(b"two"),
    )
    item = imported(aux_state=b"state", metadata={"plan": "pro"}, events=history)
    assert await storage.put(item, now=T0)
    assert [
        (event["event_id"], event["timestamp"], event["metadata"], event["payload"])
        for event in tables.events()
    ] == [
        (1, T0 - timedelta(days=900), {"name": "opened"}, b"\x00one"),
        (2, T0, {}, b"two"),
    ]
    step = await hold(storage, request())
    assert (step.process.aux_state, step.process.metadata) == (b"state", {"plan": "pro"})
    assert step.process.status is ProcessStatus.RUNNING
    await save(storage, step, resume(events=events(1)))
    assert tables.events()[-1]["event_id"] == 3


async def test_large_floats_in_metadata(storage: Storage, tables: Tables) -> None:
    """A float in metadata comes back as a float, however large; a text of the same looks is left alone."""
    metadata = {
        "floats": [1e16, -1.5e300, 1.7976931348623157e308, 1e15, 2.0, 1e-9, {"deep": 1e22}],
        "whole": [10**16, 2, -(10**30)],
        'a "1e+16': '"1e+16',
        "back\\": "\\1e+16",
    }
    await storage.put(imported(metadata=metadata, events=(Event(b"1", metadata),)), now=T0)
    assert repr(sorted(tables.events()[0]["metadata"].items())) == repr(sorted(metadata.items()))
    step = await hold(storage, request())
    assert repr(sorted(step.process.metadata.items())) == repr(sorted(metadata.items()))


@pytest.mark.parametrize(
    ("timer", "kind"),
    [
        (SetTimer(at=T0 + SECOND), TaskType.TIMEOUT),
        (SetTimer(after=SECOND), TaskType.TIMEOUT),
        (SetTimer(after=SECOND, remove=True), TaskType.REMOVE),
    ],
)
async def test_with_a_timer(storage: Storage, timer: SetTimer, kind: TaskType) -> None:
    """The timer of an imported process is claimed when it is due."""
    await storage.put(imported(timers=(timer,)), now=T0)
    assert await claim_timers(storage, now=T0) == []
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    assert step.task.task_type is kind


async def test_broken(storage: Storage, tables: Tables) -> None:
    """A broken process can be put, and then repaired."""
    assert await storage.put(imported(status="error", detail="from the old system"), now=T0)
    step = await hold(storage, repair())
    assert (step.process.detail, step.process.corrupted_by) == ("from the old system", None)
    await save(storage, step, resume())
    assert tables.process()["status"] == "running"  # type: ignore[index]


async def test_broken_with_a_timer(storage: Storage, tables: Tables) -> None:
    """The timer of a process that is put as broken is held, and comes back with its repair."""
    item = imported(status="error", detail="from the old system", timers=(SetTimer(after=SECOND),))
    assert await storage.put(item, now=T0)
    assert tables.outline()[-1] == ("timeout", "held")
    assert await claim_timers(storage, now=T0 + SECOND) == []
    await storage.simple_repair([repair()], now=T0)
    assert len(await claim_timers(storage, now=T0 + SECOND)) == 1


async def test_taken_id(storage: Storage, tables: Tables) -> None:
    """An id that is taken is left as it is."""
    await start(storage, "p1")
    await hold(storage, init("p2"))
    before = tables.everything()
    for process_id in ("p1", "p2"):
        assert await storage.put(imported(process_id, events=events(2)), now=T0) is False
    assert tables.everything() == before


async def test_nobody_serves_it(storage: Storage, tables: Tables) -> None:
    """What is put into a namespace that is not there, any more, is told from an id that is taken."""
    assert await storage.put(Import("nobody.knows", "p1", "put-1"), now=T0) is None
    tables.execute("DELETE FROM namespaces")
    assert await storage.put(imported(), now=T0) is None
    assert tables.execute("SELECT * FROM tasks") == []


async def test_many_events(storage: Storage, tables: Tables) -> None:
    """A long history is put in one transaction."""
    assert await storage.put(imported(events=events(40_000)), now=T0)
    (row,) = tables.execute("SELECT count(*) AS n, max(event_id) AS high FROM events")
    assert (row["n"], row["high"]) == (40_000, 40_000)
