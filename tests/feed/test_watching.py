"""Watches: each change of one process with all its events, in order, until it is removed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import psycopg
import pytest

from progressor import (
    Client,
    Engine,
    HistoryTruncated,
    InvalidRequest,
    Namespace,
    NamespaceNotFound,
    NonRetryable,
    Process,
    ProcessChange,
    ProcessNotFound,
    StorageUnavailable,
)
from progressor.client.watches import process_watch
from progressor.node import watcher
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.statements import Results, Transaction
from tests.support import eventually

fed = Namespace("watch.fed", state=int, feed=True)
plain = Namespace("watch.plain", state=int)


@fed.init
@plain.init
async def begin(process: Process[int]) -> None:
    """Begin at nothing."""
    process.state = 0


@fed.call
@plain.call
async def add(process: Process[int], times: int) -> None:
    """Add one so many times, with an event for each."""
    for _ in range(times):
        process.state = (process.state or 0) + 1
        process.emit("added", total=process.state)


@fed.call
@plain.call
async def count(process: Process[int]) -> None:
    """Add one, without an event."""
    process.state = (process.state or 0) + 1


@fed.call
@plain.call
async def fail(process: Process[int]) -> None:
    """Break."""
    raise NonRetryable("no tea")


@fed.repair
@plain.repair
async def mend(process: Process[int]) -> None:
    """Go on, with an event."""
    process.emit("mended")


@fed.call
@plain.call
async def leave(process: Process[int]) -> None:
    """Go, with a last event."""
    process.emit("left")
    process.remove()


@pytest.fixture(params=[fed.name, plain.name])
def ns(request: pytest.FixtureRequest) -> str:
    """A namespace with a feed, and one without."""
    return str(request.param)


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """The client of an engine with both namespaces."""
    async with Engine(dsn, [fed, plain]) as engine:
        yield engine.client


@pytest.fixture
async def other(dsn: str, client: Client) -> AsyncIterator[Client]:
    """A client without handlers, in a node of its own."""
    async with Client(dsn) as other:
        yield other


async def following(changes: AsyncIterator[ProcessChange]) -> ProcessChange:
    """The next change."""
    async with asyncio.timeout(30):
        return await anext(changes)


async def until(changes: AsyncIterator[ProcessChange], last: int) -> list[ProcessChange]:
    """The changes up to that with this event."""
    found = [await following(changes)]
    while found[-1].last_event_id < last:
        found.append(await following(changes))
    return found


def ids(changes: list[ProcessChange]) -> list[int]:
    return [event.event_id for change in changes for event in change.events]


async def test_all_of_a_life(ns: str, client: Client, other: Client) -> None:
    """From the present state on: events, states, a failure with its text, a repair, and the end."""
    await client.start(ns, "p")
    await client.call(ns, "p", "add", 1)
    changes = other.watch(ns, "p", state=True)
    first = await following(changes)
    assert (first.status, first.events, first.last_event_id, first.state) == ("running", (), 1, 1)
    await client.call(ns, "p", "add", 2)
    second = await following(changes)
    assert [(e.event_id, e.name, e.payload) for e in second.events] == [
        (2, "added", {"total": 2}),
        (3, "added", {"total": 3}),
    ]
    assert (second.status, second.last_event_id, second.state) == ("running", 3, 3)
    await client.call(ns, "p", "count")
    assert (await following(changes))[3:] == ("running", (), 3, None, 4)
    await client.notify(ns, "p", "fail")
    broken = await following(changes)
    assert broken.status == "error"
    assert "no tea" in (broken.detail or "")
    await client.repair(ns, "p")
    mended = await following(changes)
    assert (mended.status, mended.detail, ids([mended])) == ("running", None, [4])
    await client.call(ns, "p", "leave")
    found = [change async for change in changes]
    assert [change.status for change in found][-1] == "removed"
    # The last event is kept for readers of a feed, and nowhere else.
    assert ids(found) == ([5] if ns == fed.name else [])


async def test_many_steps_at_once(ns: str, client: Client, other: Client) -> None:
    """Every event once and in order, for a consumer that is quick and one that is slow."""
    await client.start(ns, "p")
    quick, slow = other.watch(ns, "p"), other.watch(ns, "p", state=True)
    assert ids([await following(quick), await following(slow)]) == []
    calls = asyncio.gather(*(client.call(ns, "p", "add", 2) for _ in range(100)))
    found = await until(quick, 200)
    await calls
    assert ids(found) == list(range(1, 201))
    late = await until(slow, 200)
    assert ids(late) == list(range(1, 201))
    assert late[-1].state == 200
    await quick.aclose()  # type: ignore[attr-defined] # a generator
    assert len({change.position for change in found}) == len(found)


async def test_removed_amid_its_steps(client: Client, other: Client) -> None:
    """With a feed no event of a process that removes itself is missing, however it races with looks."""
    for number in range(10):
        name = f"p{number}"
        await client.start(fed.name, name)
        changes = other.watch(fed.name, name)
        found = [await following(changes)]
        steps = [client.call(fed.name, name, "add", 3) for _ in range(5)]
        await asyncio.gather(*steps)
        await client.call(fed.name, name, "leave")
        found += [change async for change in changes]
        assert ids(found) == list(range(1, 17))
        assert [change.status for change in found].index("removed") == len(found) - 1


async def test_a_look_that_fails(
    ns: str, client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no watch if PostgreSQL answers the next read."""
    await client.start(ns, "p")
    changes = other.watch(ns, "p")
    await following(changes)
    reads, failed = other._node.watcher.reads, asyncio.Event()

    async def fails(*_: Any) -> list[int]:
        failed.set()
        raise StorageUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(reads, "look_watched", fails)
        waiting = asyncio.ensure_future(following(changes))
        await failed.wait()
    await client.call(ns, "p", "add", 1)
    assert ids([await waiting]) == [1]


async def test_without_signals(client: Client, dsn: str) -> None:
    """Changes are found by looking, also where a pooler gives each transaction another session."""
    await client.start(fed.name, "p")
    async with Client(dsn, signals=False) as other:
        changes = other.watch(fed.name, "p")
        await following(changes)
        await client.call(fed.name, "p", "add", 1)
        assert ids([await following(changes)]) == [1]


async def test_going_on_behind_each(ns: str, client: Client, other: Client) -> None:
    """Whoever goes on behind a change gets what came since, and nothing twice."""
    await client.start(ns, "p")
    changes = other.watch(ns, "p")
    found = [await following(changes)]
    for _ in range(3):
        await client.call(ns, "p", "add", 1)
        found.append(await following(changes))
    for place, change in enumerate(found[:-1]):
        rest = await until(other.watch(ns, "p", after=change.position), 3)
        assert ids(rest) == ids(found[place + 1 :])
        assert rest[-1].position == found[-1].position
    # Behind the last there is nothing before the next step.
    last = other.watch(ns, "p", after=found[-1].position)
    waiting = asyncio.ensure_future(following(last))
    await client.call(ns, "p", "add", 1)
    assert ids([await waiting]) == [4]


async def test_more_events_than_a_change_has(ns: str, client: Client, other: Client) -> None:
    """They come in several changes, each with a position of its own."""
    await client.start(ns, "p")
    first = await following(other.watch(ns, "p"))
    await client.call(ns, "p", "add", 2500)
    found = await until(other.watch(ns, "p", after=first.position), 2500)
    assert [len(change.events) for change in found] == [1000, 1000, 500]
    rest = await until(other.watch(ns, "p", after=found[0].position), 2500)
    assert ids(found[:1] + rest) == list(range(1, 2501))


async def test_removed_and_started_anew(ns: str, client: Client, other: Client) -> None:
    """A watch ends with its life, also if another one has its name by then; behind the end comes that."""
    await client.start(ns, "p")
    changes = other.watch(ns, "p")
    first = await following(changes)
    await client.remove(ns, "p")
    await client.start(ns, "p")
    await client.call(ns, "p", "add", 1)
    (end,) = [change async for change in changes]
    assert (end.status, end.events) == ("removed", ())
    (again,) = [change async for change in other.watch(ns, "p", after=first.position)]
    assert again == end
    new = await following(other.watch(ns, "p", after=end.position))
    assert (new.status, new.events, new.last_event_id) == ("running", (), 1)
    await client.remove(ns, "p")
    with pytest.raises(ProcessNotFound):
        await following(other.watch(ns, "p", after=end.position))


async def test_one_that_begins(client: Client, other: Client) -> None:
    """A process is watched from its init on; one that its init refuses is removed."""
    await client.pause(plain.name)
    await client.submit_start(plain.name, "p")
    changes = other.watch(plain.name, "p")
    assert (await following(changes)).status == "init"
    await client.resume(plain.name)
    assert (await following(changes)).status == "running"


async def test_what_the_retention_has_deleted(client: Client, other: Client, dsn: str) -> None:
    """Going on before what is left is an error, and no gap."""
    await client.start(plain.name, "p")
    first = await following(other.watch(plain.name, "p"))
    await client.call(plain.name, "p", "add", 3)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM progressor.events WHERE event_id <= 2")
        connection.execute("UPDATE progressor.processes SET first_event_id = 3")
    with pytest.raises(HistoryTruncated) as caught:
        await following(other.watch(plain.name, "p", after=first.position))
    assert caught.value.first_event_id == 3
    await client.remove(plain.name, "p")


def restore(dsn: str, *, last: int) -> None:
    """Take from all processes what came behind an event, as a server that was restored to that moment."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM progressor.events WHERE event_id > %s", [last])
        connection.execute("UPDATE progressor.processes SET last_event_id = %s", [last])


def sweep(dsn: str, *, first: int) -> None:
    """Delete the events before this one, as a retention."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM progressor.events WHERE event_id < %s", [first])
        connection.execute("UPDATE progressor.processes SET first_event_id = %s", [first])


@pytest.mark.parametrize("added", [0, 3, 6, 8])
async def test_a_restore(ns: str, client: Client, other: Client, dsn: str, added: int) -> None:
    """What was told is lost, overtaken or not: all comes again, to a reader that was there or was not."""
    await client.start(ns, "p")
    live = other.watch(ns, "p", state=True)
    await following(live)
    await client.call(ns, "p", "add", 11)
    (told,) = await until(live, 11)
    restore(dsn, last=5)
    await client.call(ns, "p", "add", added)
    for changes in (live, other.watch(ns, "p", after=told.position, state=True)):
        anew = await following(changes)
        assert anew[3:] == ("running", (), 0, None, 11 + added)
        found = await until(changes, 5 + added)
        assert ids(found) == list(range(1, 6 + added))
        (again,) = await until(other.watch(ns, "p", after=anew.position), 5 + added)
        assert again.events == found[-1].events


async def test_a_restore_behind_the_present(ns: str, client: Client, other: Client, dsn: str) -> None:
    """What a watch began with was told too."""
    await client.start(ns, "p")
    await client.call(ns, "p", "add", 11)
    first = await following(other.watch(ns, "p"))
    restore(dsn, last=5)
    await client.call(ns, "p", "add", 8)
    changes = other.watch(ns, "p", after=first.position)
    assert (await following(changes)).last_event_id == 0
    assert ids(await until(changes, 13)) == list(range(1, 14))


async def test_a_restore_amid_a_read(
    client: Client, other: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind the first part of many events."""
    monkeypatch.setattr(process_watch, "_MOST_EVENTS", 4)
    await client.start(plain.name, "p")
    changes = other.watch(plain.name, "p")
    await following(changes)
    await client.call(plain.name, "p", "add", 11)
    assert ids([await following(changes)]) == [1, 2, 3, 4]
    restore(dsn, last=2)
    await client.call(plain.name, "p", "add", 4)
    assert (await following(changes)).last_event_id == 0
    assert ids(await until(changes, 6)) == list(range(1, 7))


async def test_a_restore_and_a_retention(client: Client, other: Client, dsn: str) -> None:
    """What is kept comes again; if the retention has deleted what was told, nobody can compare it."""
    await client.start(plain.name, "p")
    await client.call(plain.name, "p", "add", 11)
    first = await following(other.watch(plain.name, "p"))
    restore(dsn, last=5)
    await client.call(plain.name, "p", "add", 8)
    sweep(dsn, first=4)
    changes = other.watch(plain.name, "p", after=first.position)
    assert (await following(changes)).last_event_id == 3
    assert ids(await until(changes, 13)) == list(range(4, 14))
    sweep(dsn, first=12)
    assert ids(await until(other.watch(plain.name, "p", after=first.position), 13)) == [12, 13]


async def test_a_restore_and_a_removal(client: Client, other: Client, dsn: str) -> None:
    """The feed keeps the events of a process that removed itself, and all of them come again."""
    await client.start(fed.name, "p")
    await client.call(fed.name, "p", "add", 11)
    first = await following(other.watch(fed.name, "p"))
    restore(dsn, last=5)
    await client.call(fed.name, "p", "add", 8)
    await client.call(fed.name, "p", "leave")
    found = [change async for change in other.watch(fed.name, "p", after=first.position)]
    assert (found[0].last_event_id, ids(found), found[-1].status) == (0, list(range(1, 15)), "removed")


async def test_a_position_of_an_older_release(client: Client, other: Client) -> None:
    """It has no mark: the watch goes on behind it, and nothing is told before the next step."""
    await client.start(plain.name, "p")
    await client.call(plain.name, "p", "add", 1)
    first = await following(other.watch(plain.name, "p"))
    *older, _, name = first.position.split("-")
    changes = other.watch(plain.name, "p", after="-".join((*older, name)))
    waiting = asyncio.ensure_future(following(changes))
    await client.call(plain.name, "p", "add", 1)
    assert ids([await waiting]) == [2]


async def test_what_is_not_there(client: Client) -> None:
    """Of processes and namespaces that nobody knows the loop raises the error of a read."""
    with pytest.raises(ProcessNotFound):
        await following(client.watch(plain.name, "nobody"))
    with pytest.raises(NamespaceNotFound):
        await following(client.watch("watch.plains", "p"))


@pytest.mark.parametrize(
    "after", ["", "now", "1-2-3-4", "1-2-3-4-5", "9999999999999999999-1-1-1-00000000", "1-2-3-4-00000000"]
)
def test_what_is_no_position(after: str) -> None:
    """It is refused before anything is asked of the database; so is that of another process."""
    with pytest.raises(InvalidRequest) as caught:
        Client("postgresql://nowhere/x").watch("watch.plain", "p", after=after)
    assert caught.value.field == "after"


async def test_no_more_than_it_can(client: Client, other: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One watch too many is refused; each that ends makes room."""
    monkeypatch.setattr(watcher, "_MOST", 2)
    await client.start(plain.name, "p")
    async with aclosing(other.watch(plain.name, "p")) as first:  # type: ignore[type-var] # a generator
        second = other.watch(plain.name, "p")
        await following(first)
        await following(second)
        with pytest.raises(InvalidRequest, match="watches 2 processes"):
            await following(other.watch(plain.name, "p"))
    assert (await following(other.watch(plain.name, "p"))).status == "running"


async def test_a_client_that_is_closed(client: Client, dsn: str) -> None:
    """Its loops end with the error of every other method."""
    await client.start(plain.name, "p")
    async with Client(dsn) as other:
        changes = other.watch(plain.name, "p")
        await following(changes)
        waiting = asyncio.ensure_future(following(changes))
        await asyncio.sleep(0)
    with pytest.raises(StorageUnavailable):
        await waiting


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What sessions sent, message by message."""
    found: list[tuple[str, ...]] = []
    send = Session._send

    async def noted(session: Session, statements: Transaction, hints: Hints | None = None) -> Results:
        found.append(tuple(statements))
        return await send(session, statements, hints)

    monkeypatch.setattr(Session, "_send", noted)
    return found


async def test_one_statement_for_all(
    ns: str, client: Client, other: Client, sent: list[tuple[str, ...]]
) -> None:
    """Of 500 watched processes a look is one statement, and only what has changed is read."""
    names = [f"p{number}" for number in range(500)]
    await asyncio.gather(*(client.start(ns, name) for name in names))
    watches = {name: other.watch(ns, name) for name in names}
    await asyncio.gather(*(following(watch) for watch in watches.values()))
    waiting: dict[str, Any] = {name: asyncio.ensure_future(following(watches[name])) for name in names}
    looks = Counter[str]()
    await eventually(lambda: ("look_watched",) in sent, "it looks")
    sent.clear()
    await client.call(ns, "p17", "add", 1)
    change = await waiting.pop("p17")
    assert (change.process_id, ids([change])) == ("p17", [1])
    for statements in sent:
        looks.update(each for each in statements if "watched" in each)
    assert looks["watched_process"] == looks["watched_events"] == 1
    # Looks of another watch than all would be many more.
    assert 1 <= looks["look_watched"] < 50
    assert not any(each.done() for each in waiting.values())
    for each in waiting.values():
        each.cancel()
    await asyncio.gather(*waiting.values(), return_exceptions=True)
