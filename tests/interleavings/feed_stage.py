"""A stage on which writers of feeding namespaces, sequencers and readers act at once, move by move.

Rule: between any two moves an onlooker reads all that has a position, and goes on where it was. It numbers
nothing and locks nothing, so it sees what readers can see at that moment, and no move waits for it.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar, cast

import psycopg

from progressor.storage.feed.places import FeedHead, FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedFilter
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.statements import Results, Transaction
from tests.interleavings.stepping import DEADLINE, PATIENCE, Act, Side
from tests.model.profiles import DEEP
from tests.model.world import TABLES
from tests.support import NS, Tables

T = TypeVar("T")
OTHER = "other"
ALL = FeedFilter(list("ecsbpr"))
Told = tuple[str, str, int]
"""An entry of the feed: its process, its letter, and the number of an event."""
Own = list[tuple[str, int]]
"""The entries of one process: their letters, and the numbers of events."""
_MORE_IN_DEEP = 10


class Player(NamedTuple):
    """One who acts, and how many statements each of its moves has; one more move leads to its end."""

    act: Act
    moves: Sequence[int] = ()


def orders(moves: str, *, most: int) -> list[str]:
    """Return the orders of these moves, each a letter of its player: all, or `most` that are as ever."""
    many = math.factorial(len(moves))
    for count in Counter(moves).values():
        many //= math.factorial(count)
    most *= _MORE_IN_DEEP if DEEP else 1
    if many <= most:
        return list(_merged(Counter(moves), ""))
    letters, rand, found = list(moves), random.Random(7), dict[str, None]()
    while len(found) < most:
        rand.shuffle(letters)
        found["".join(letters)] = None
    return list(found)


def _merged(left: Counter[str], so_far: str) -> Iterator[str]:
    if not left:
        yield so_far
    for name in left:
        yield from _merged(left - Counter([name]), so_far + name)


class Stage:
    """A database with two feeding namespaces, and sides who meet there again and again."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self.dsn, self._runner = dsn, runner
        self._connection = psycopg.connect(dsn, autocommit=True)
        self.tables = Tables(self._connection)
        self._monitor = runner.run(psycopg.AsyncConnection.connect(dsn, autocommit=True))
        self._sides = [Side(dsn, self._monitor) for _ in range(4)]
        self._pools = SessionPool(dsn, limit=1), _Onlooker(dsn, limit=1)
        self.storage, self._onlooking = (Storage(each, patience=PATIENCE) for each in self._pools)
        self._epoch = self.run(self.storage.feed_head()).epoch
        self._meetings = 0
        self._place, self.seen = self.first, list[FeedEntry]()

    def close(self) -> None:
        self._connection.close()
        self.run(self._monitor.close())
        for connections in (*self._sides, *self._pools):
            self.run(connections.close())

    def run(self, something: Awaitable[T]) -> T:
        async def run() -> T:
            return await something

        return self._runner.run(run())

    @property
    def first(self) -> FeedPlace:
        return FeedHead(0, 0, self._epoch).first_place

    def empty(self, *, on_zombie: str = "error") -> None:
        """Begin another meeting: with nothing there, and nothing seen."""
        self._meetings += 1
        if self._meetings % 500 == 0:
            self._connection.execute(b"TRUNCATE " + b", ".join(name.encode() for name in TABLES))
        with self._connection.pipeline():
            for name in TABLES:
                self._connection.execute(b"DELETE FROM " + name.encode())
            self._connection.execute("UPDATE feed_head SET position = 0, dropped = 0")
        for namespace in (NS, OTHER):
            self.tables.set_namespace(namespace, on_zombie=on_zombie, feed=True)
        self.tables.set_collector()
        self._place, self.seen = self.first, []

    async def play(
        self, cast: Mapping[str, Player], order: str, *, between: Callable[[], object] = tuple
    ) -> dict[str, Any]:
        """Let the players make their moves in this order, then come to their ends; return the results.

        Who waits for another one goes on when it can, and its moves in the meantime are lost. `between`
        any two moves this is called.
        """
        sides = dict(zip(cast, self._sides, strict=False))
        moves = {name: iter(player.moves) for name, player in cast.items()}
        for name, side in sides.items():
            side.begin(cast[name].act)
        try:
            for name in order:
                await sides[name].run(next(moves[name], None))
                for side in sides.values():
                    await side.settle()
                await self._look()
                between()
            await self._end(list(sides.values()))
        finally:
            for side in sides.values():
                await side.abandon()
        return {name: side.result() for name, side in sides.items()}

    async def _end(self, sides: Sequence[Side]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not all(side.has_ended for side in sides):
                for side in sides:
                    await side.run()
        assert [error for side in sides for error in side.refusals] == []

    async def _look(self) -> None:
        self._place = await _read(self._onlooking, self._place, self.seen)

    async def told(self) -> list[Told]:
        """Return what the onlooker has seen at the end, once all is numbered.

        It must be what is there for one who reads now, in rows without a gap.
        """
        head = await self.storage.feed_head()
        await self._look()
        again: list[FeedEntry] = []
        await _read(self.storage, self.first, again)
        # But for what events had, which may be deleted since.
        seen, there = ([each[:7] for each in entries] for entries in (self.seen, again))
        assert seen == there, "something appeared where the onlooker had been"
        rows = self.tables.execute("SELECT position FROM feed ORDER BY position")
        assert [row["position"] for row in rows] == list(range(1, head.position + 1))
        return told(self.seen)


async def _read(storage: Storage, place: FeedPlace, seen: list[FeedEntry]) -> FeedPlace:
    """Read all behind a place, and return the place behind that."""
    while True:
        part = await storage.read_feed(ALL, place)
        assert part.gap is None
        seen += part.entries
        place = part.place
        if not part.has_more:
            return place


class _Onlooker(SessionPool):
    """The connection of a reader who never finds a row without a position."""

    @asynccontextmanager
    async def acquire(self, patience: float | None = None) -> AsyncIterator[Session]:
        async with super().acquire() as session:
            yield cast("Session", _Onlooking(session))


class _Onlooking:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def transact(self, statements: Transaction, _hints: Hints | None = None) -> Results:
        found = await self._session.transact({"read_feed": statements["read_feed"]})
        return {**found, "number_feed": [{"has_more": False}]}


def told(entries: Sequence[FeedEntry]) -> list[Told]:
    return [(each.process_id, each.letter, 0 if each.letter != "e" else each.n) for each in entries]


def by_process(entries: Sequence[Told]) -> dict[str, Own]:
    found = defaultdict[str, Own](list)
    for process_id, letter, n in entries:
        found[process_id].append((letter, n))
    return found
