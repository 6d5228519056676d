"""What one read of the feed finds, and what it says is missing, whatever others do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict

from progressor import (
    Client,
    Engine,
    FeedEvent,
    FeedTruncated,
    KeyMissing,
    Namespace,
    Process,
    StorageUnavailable,
)
from progressor.codecs import Keyring
from progressor.storage.feed.places import FeedGap, FeedHead, FeedPlace
from progressor.storage.feed.reading import FeedFilter
from progressor.storage.operations import Storage
from progressor.storage.statements import STATEMENTS
from tests.feed.starts import FIRST, first_look
from tests.support import Tables, eventually

_APPEND: LiteralString = """
INSERT INTO progressor.feed (
    appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids, event_counts
)
SELECT
    statement_timestamp() + n * interval '1 microsecond', %s, 's', '{99}', ARRAY[%s], '{1}', '{0}', '{0}'
FROM generate_series(1, %s) AS n
"""
_POSITIONS = "SELECT process_ids[1], position FROM progressor.feed ORDER BY position, feed_id"
_CUT: LiteralString = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
KEYS = {"k1": bytes(range(32))}
STEPS = FeedFilter(["s"])


@pytest.fixture(autouse=True)
def numbers(tables: Tables) -> None:
    """The numbers that the rows of these tests have are given."""
    tables.execute("SELECT setval('processes_process_no_seq', 99), setval('tasks_task_id_seq', 99)")


def append(tables: Tables, name: str = "x", *, many: int = 1, namespace: str = "other") -> None:
    """Append rows of a process, each with one step without events."""
    tables.execute(_APPEND, namespace, name, many)


async def append_late(connection: AsyncConnection[Any], name: str) -> None:
    """Append a row in an open transaction."""
    await connection.execute(_APPEND, ("other", name, 1))


async def first_place(storage: Storage) -> FeedPlace:
    return (await storage.feed_head()).first_place


def vault(name: str = "vault", codec: Keyring | None = None) -> Namespace:
    """Processes that note words in events."""
    namespace = Namespace(name, feed=True, codec=codec)

    @namespace.init
    async def begin(process: Process, words: list[str]) -> None:
        process.state = 0
        for word in words:
            process.emit("noted", word=word)

    @namespace.call
    async def note(process: Process, word: str) -> None:
        process.emit("noted", word=word)

    @namespace.call
    async def fail(process: Process) -> None:
        raise ValueError("it fails")

    @namespace.repair
    async def mend(process: Process) -> None:
        process.emit("mended")

    return namespace


async def take(count: int, events: AsyncIterator[FeedEvent]) -> list[FeedEvent]:
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


def words(events: Iterable[FeedEvent]) -> list[str]:
    return [event.payload["word"] for event in events]


# Numbering, with sessions in each other's way.


@pytest.fixture
async def sessions(dsn: str) -> AsyncIterator[list[AsyncConnection[Any]]]:
    """Three sessions whose transactions the test begins and ends."""
    opened = [await AsyncConnection.connect(dsn) for _ in range(3)]
    yield opened
    for connection in opened:
        await connection.close()


async def send(connection: AsyncConnection[Any], name: str) -> list[tuple[Any, ...]]:
    """Send one of the statements of a read."""
    cursor = await connection.execute(STATEMENTS[name].encode(), {"limit": 1000, "always": False})
    return await cursor.fetchall()


async def positions(connection: AsyncConnection[Any]) -> list[tuple[Any, ...]]:
    await connection.rollback()
    return await (await connection.execute(_POSITIONS)).fetchall()


async def test_what_comes_between_the_lock_and_the_numbers(sessions: list[AsyncConnection[Any]]) -> None:
    """Who locked nothing numbers nothing, though there is something by then: another one may be at it."""
    first, second, _ = sessions
    assert await send(first, "lock_feed") == []
    await append_late(second, "a")
    await second.commit()
    assert await send(first, "number_feed") == [(False,)]
    await first.commit()
    assert await positions(second) == [("a", None)]
    assert len(await send(first, "lock_feed")) == 1
    await send(first, "number_feed")
    await first.commit()
    assert await positions(second) == [("a", 1)]


async def test_a_lock_is_of_one_transaction(sessions: list[AsyncConnection[Any]]) -> None:
    """The next one of the same session does not take itself for the holder."""
    first, second, _ = sessions
    await append_late(second, "a")
    await second.commit()
    for end in (first.commit, first.rollback):
        assert len(await send(first, "lock_feed")) == 1
        await end()
        await send(first, "number_feed")
        await first.commit()
        assert await positions(second) == [("a", None)]


async def test_two_who_number(sessions: list[AsyncConnection[Any]], tables: Tables) -> None:
    """The second waits for the first, and goes on where it ended; what is not committed yet comes later."""
    first, second, third = sessions
    await append_late(third, "late")
    for name in ("a", "b"):
        await append_late(first, name)
    await first.commit()
    await send(first, "lock_feed")
    await send(first, "number_feed")
    waiting = asyncio.ensure_future(send(second, "lock_feed"))
    await eventually(tables.waiting, "the second waits")
    await third.commit()
    await first.commit()
    assert len(await waiting) == 1
    await send(second, "number_feed")
    await second.commit()
    assert await positions(first) == [("a", 1), ("b", 2), ("late", 3)]


async def test_one_who_numbers_and_fails(sessions: list[AsyncConnection[Any]]) -> None:
    """Nothing is numbered, and no position is left out."""
    first, second, _ = sessions
    await append_late(first, "a")
    await first.commit()
    await send(first, "lock_feed")
    await send(first, "number_feed")
    await first.rollback()
    await append_late(first, "b")
    await first.commit()
    await send(second, "lock_feed")
    await send(second, "number_feed")
    await second.commit()
    assert await positions(first) == [("a", 1), ("b", 2)]


async def test_more_than_one_transaction_numbers(storage: Storage, tables: Tables) -> None:
    """The head is asked for until all is numbered."""
    append(tables, many=2500)
    assert (await storage.feed_head()).position == 2500
    assert (await storage.feed_head()).position == 2500


# What one read finds.


async def test_a_window(storage: Storage, tables: Tables) -> None:
    """A read goes on behind the rows that it has looked at, though none fits."""
    append(tables, many=2500)
    append(tables, "mine", namespace="shop.till")
    place, reads = await first_place(storage), []
    while not (part := await storage.read_feed(FeedFilter(["s"], ["shop.*"]), place)).entries:
        reads.append(part)
        place = part.place
    assert [(each.place.position, each.has_more) for each in reads] == [(1000, True), (2000, True)]
    assert [each.process_id for each in part.entries] == ["mine"]
    assert (part.place.position, part.has_more) == (2501, False)
    again = await storage.read_feed(STEPS, part.place)
    assert again == (part._replace(entries=[]))


async def test_patterns(storage: Storage, tables: Tables) -> None:
    """`*` fits any characters; what SQL takes for a pattern fits itself alone."""
    for name in ("a_b", "axb", "a.b", "a"):
        append(tables, name, namespace=name)
    place = await first_place(storage)

    async def found(*patterns: str) -> list[str]:
        part = await storage.read_feed(FeedFilter(["s"], patterns), place)
        return [each.namespace for each in part.entries]

    assert await found("a_*") == ["a_b"]
    assert await found("a*b") == ["a_b", "axb", "a.b"]
    assert await found("a", "a.*") == ["a.b", "a"]
    assert await found("*") == ["a_b", "axb", "a.b", "a"]


async def test_a_row_of_several_processes(storage: Storage, tables: Tables) -> None:
    """From each place in it a read goes on with the next entry: of the process, or of the next one."""
    tables.execute(
        "INSERT INTO progressor.feed (appended_at, namespace, kinds, process_nos, process_ids, task_ids, "
        "last_event_ids, event_counts) VALUES (now(), 'other', 'csbpr', '{1,2,3,4,5}', '{a,b,c,d,e}', "
        "'{1,2,3,4,NULL}', '{2,1,0,7,3}', '{2,1,0,1,0}')"
    )
    wanted = FeedFilter(list("ecsbpr"))
    first = await first_place(storage)
    found = (await storage.read_feed(wanted, first)).entries
    assert [(each.process_id, each.letter) for each in found] == [
        *[("a", "c"), ("a", "e"), ("a", "e"), ("b", "e"), ("b", "s"), ("c", "b"), ("d", "p"), ("d", "e")],
        ("e", "r"),
    ]
    assert [each.place.n for each in found if each.letter == "e"] == [1, 2, 1, 7]
    for number, each in enumerate(found):
        assert (await storage.read_feed(wanted, each.place)).entries == found[number + 1 :]
        assert (await storage.read_feed(wanted, each.place, limit=1)).entries == found[number + 1 :][:1]


async def test_room(dsn: str) -> None:
    """Payloads of many bytes are read a few at a time, but one at least; each comes once."""
    async with Engine(dsn, [vault()]) as engine:
        await engine.client.start("vault", "v", ["x" * 50_000] * 9)
        storage = engine.client._node.storage
        place, counts, ids = await first_place(storage), [], []
        while True:
            part = await storage.read_feed(FeedFilter(["e"]), place, room=120_000)
            counts.append(len(part.entries))
            ids += [each.place.n for each in part.entries]
            place = part.place
            if not part.has_more:
                break
        assert (counts, ids) == ([3, 3, 3], list(range(1, 10)))
        one = await storage.read_feed(FeedFilter(["e"]), FeedPlace(0, epoch=place.epoch), room=1)
        assert (len(one.entries), one.has_more) == (1, True)
        limited = await storage.read_feed(FeedFilter(["e"]), FeedPlace(0, epoch=place.epoch), limit=2)
        assert (len(limited.entries), limited.has_more) == (2, True)


# What is missing.

_HEAD = FeedHead(position=9, dropped=3, epoch=7)


@pytest.mark.parametrize(
    ("place", "gap"),
    [
        (FeedPlace(9, 1, 1, 5, 7), None),
        (FeedPlace(9, 1, 1, 0, 7), None),
        (FeedPlace(9, 1, 1, 4, 7), FeedGap.LOST),
        (FeedPlace(10, 1, 1, 5, 7), FeedGap.LOST),
        (FeedPlace(9, 1, 1, 5, 8), FeedGap.FOREIGN),
        (FeedPlace(10, 1, 1, 5, 8), FeedGap.FOREIGN),
        (FeedPlace(2, 1, 1, 5, 7), FeedGap.DELETED),
        (FeedPlace(3, 1, 1, 5, 7), FeedGap.DELETED),
        (FeedPlace(3, epoch=7), None),
    ],
)
def test_a_gap(place: FeedPlace, gap: FeedGap | None) -> None:
    """Of another feed, ahead of this one, with another row there, or deleted; in this order."""
    assert _HEAD.gap_behind(place, 5) == gap


async def test_rows_that_others_delete(storage: Storage, tables: Tables) -> None:
    """A read never passes over what is gone, whenever it went: the head is of its own snapshot."""
    append(tables, many=20)
    place = (await storage.read_feed(STEPS, await first_place(storage), limit=5)).place
    tables.execute("DELETE FROM progressor.feed WHERE position <= 10")
    tables.execute("UPDATE progressor.feed_head SET dropped = 10")
    part = await storage.read_feed(STEPS, place)
    assert (part.entries, part.place, part.gap) == ([], place, FeedGap.DELETED)


async def test_a_database_that_went_back(storage: Storage, tables: Tables) -> None:
    """A standby without the last rows took over: whoever has read them is told, also once there are others.

    Whoever has read only what is left reads on.
    """
    append(tables, many=10)
    all_read = await storage.read_feed(STEPS, await first_place(storage))
    latest = (await storage.feed_head()).last_place
    tables.execute("DELETE FROM progressor.feed WHERE position > 8")
    tables.execute("UPDATE progressor.feed_head SET position = 8")
    for _ in range(3):
        assert (await storage.read_feed(STEPS, all_read.place)).gap is FeedGap.LOST
        assert (await storage.read_feed(STEPS, all_read.entries[-1].place)).gap is FeedGap.LOST
        assert (await storage.read_feed(STEPS, latest)).gap is FeedGap.LOST
        assert (await storage.read_feed(STEPS, all_read.entries[7].place)).gap is None
        append(tables)


async def test_a_loop_over_what_went_back(dsn: str, tables: Tables) -> None:
    """The loop ends with the error; so does one that begins at its last position."""
    async with Engine(dsn, [vault()]) as engine:
        await engine.client.start("vault", "v", ["a", "b"])
        reader = engine.client.subscribe(after=FIRST)
        (_, last) = await take(2, reader)
        following = asyncio.ensure_future(take(1, reader))
        tables.execute("UPDATE progressor.feed SET appended_at = appended_at + interval '1 second'")
        with pytest.raises(FeedTruncated, match="fail-over"):
            await following
        with pytest.raises(FeedTruncated, match="fail-over") as caught:
            await take(1, engine.client.subscribe(after=last.position))
        assert caught.value.position == last.position
        epoch = last.position.split("-")[0]
        with pytest.raises(FeedTruncated, match="fail-over"):
            await take(1, engine.client.subscribe(after=f"{epoch}-{10**18 - 1}-1-1-0"))


async def test_another_database_under_the_loop(
    dsn: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feed that takes the place of the one that is read is not taken for it."""
    async with Engine(dsn, [vault()]) as engine:
        has_looked = first_look(engine.client, monkeypatch)
        following = asyncio.ensure_future(take(1, engine.client.subscribe(namespaces="vault")))
        await has_looked()
        tables.execute("UPDATE progressor.feed_head SET epoch = epoch # 1")
        with pytest.raises(FeedTruncated, match="another database"):
            await following


# Who reads.


async def test_a_plain_name(dsn: str) -> None:
    """One pattern, name or kind may stand alone: a text is not a list of its letters."""
    async with Engine(dsn, [vault(), vault("other")]) as engine:
        for name in ("vault", "other"):
            await engine.client.start(name, "v", ["open"])
        found = engine.client.subscribe(namespaces="oth*", events="noted", kinds="event", after=FIRST)
        assert [each.namespace for each in await take(1, found)] == ["other"]


async def test_what_breaks_and_is_mended(dsn: str) -> None:
    """The events of a repair stand behind it."""
    async with Engine(dsn, [vault()]) as engine:
        await engine.client.start("vault", "v", ["open"])
        await engine.client.notify("vault", "v", "fail")
        kinds = ("created", "event", "broken", "repaired")
        reader = engine.client.subscribe(kinds=kinds, after=FIRST)
        assert [each.kind for each in await take(3, reader)] == ["created", "event", "broken"]
        await engine.client.repair("vault", "v")
        found = await take(2, reader)
        assert [(each.kind, each.name, each.task_id) for each in found] == [
            ("repaired", None, found[1].task_id),
            ("event", "mended", found[1].task_id),
        ]


async def test_with_a_keyring(dsn: str) -> None:
    """Whoever has the key reads the payloads, as in the history; for others the error has the position."""
    ring = Keyring("k1", KEYS)
    async with Engine(dsn, [vault(codec=ring)]) as engine:
        await engine.client.start("vault", "v", ["open", "sesame"])
        found = await take(2, engine.client.subscribe(after=FIRST))
        history = (await engine.client.get("vault", "v")).history
        assert [each.payload for each in found] == [each.payload for each in history]
        assert [each.timestamp for each in found] == [each.timestamp for each in history]
    async with Client(dsn, codec=ring) as client:
        assert await take(2, client.subscribe(after=FIRST)) == found
    async with Client(dsn, codec=Keyring("k2", {"k2": KEYS["k1"]})) as client:
        with pytest.raises(KeyMissing) as caught:
            await take(1, client.subscribe(after=FIRST))
        assert caught.value.__notes__ == [f"the position of this event in the feed is {found[0].position}"]


async def test_of_a_namespace_that_was_retired(dsn: str) -> None:
    """What the feed still has of it is read, by clients too that never knew it."""
    async with Engine(dsn, [vault()]) as engine:
        await engine.client.start("vault", "v", ["open"])
    async with Client(dsn, lease_age=timedelta(microseconds=1)) as client:
        with psycopg.connect(dsn) as connection:
            connection.execute("DELETE FROM progressor.processes")
        await client.retire("vault")
    async with Client(dsn) as client:
        assert words(await take(1, client.subscribe(after=FIRST))) == ["open"]


async def test_a_slow_reader(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed is read when the reader has taken what was read before, and not ahead."""
    async with Engine(dsn, [vault()]) as engine:
        await engine.client.start("vault", "v", list("abcdefg"))
        reads = 0
        storage = engine.client._node.storage
        read = storage.read_feed

        async def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*args, **kwargs | {"limit": 2})

        monkeypatch.setattr(storage, "read_feed", counted)
        reader = engine.client.subscribe(after=FIRST)
        for taken in range(1, 8):
            await take(1, reader)
            assert reads == (taken + 1) // 2


async def test_a_client_that_is_closed(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop ends with the error of every other method."""
    async with Engine(dsn, [vault()]):
        client = Client(dsn)
        async with client:
            has_looked = first_look(client, monkeypatch)
            following = asyncio.ensure_future(take(1, client.subscribe()))
            await has_looked()
        with pytest.raises(StorageUnavailable, match="closed"):
            await following


async def test_an_outage(dsn: str, server: str, tables: Tables) -> None:
    """A lost connection is made anew; a longer outage is an error, and the position is good behind it."""
    async with Engine(dsn, [vault()]) as engine:
        await engine.client.start("vault", "v", ["a"])
        async with Client(dsn, patience=timedelta(seconds=1)) as client:
            reader = client.subscribe(after=FIRST)
            (first,) = await take(1, reader)
            tables.execute(_CUT)
            await engine.client.call("vault", "v", "note", "b")
            assert words(await take(1, reader)) == ["b"]
    async with Client(dsn, patience=timedelta(seconds=1)) as client:
        reader = client.subscribe(after=first.position)
        await take(1, reader)
        following = asyncio.ensure_future(take(1, reader))
        with psycopg.connect(server, autocommit=True) as admin:
            database = sql.Identifier(conninfo_to_dict(dsn)["dbname"])
            allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            admin.execute(allow.format(database, sql.Literal(False)))
            tables.execute(_CUT)
            with pytest.raises(StorageUnavailable):
                await following
            admin.execute(allow.format(database, sql.Literal(True)))
        assert words(await take(1, client.subscribe(after=first.position))) == ["b"]
