"""Readers of one durable subscription, and operators on it, statement by statement.

Rule: whatever the order, each entry is committed once; who has lost the lease commits nothing; and what
operators want of parked entries is done in the order of each process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from progressor.model import TaskType
from progressor.storage.admin.subscriptions import HeldSlice, Parked
from progressor.storage.feed.places import FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedFilter
from progressor.storage.operations import Storage
from tests.interleavings.feed_stage import Player, Stage, orders, told
from tests.support import T0, events, held, request, resume

_NAME = "ledger"
_HELD = timedelta(hours=1)
# Gone as soon as anybody else looks.
_LOST = timedelta(microseconds=1)
_WANTED = FeedFilter(["c", "e"])


async def _begin(storage: Storage) -> None:
    """Three processes with two events each."""
    begun = await storage.prepare_init([request(name, TaskType.INIT) for name in ("a", "b", "c")], now=T0)
    decision = resume(events=events(2), feeds=True)
    await storage.save_result([held(each).step(decision) for each in begun], now=T0)
    await storage.feed_head()


class Journal:
    """What readers of the subscription have committed, and how far its checkpoint has come."""

    def __init__(self, stage: Stage) -> None:
        self.committed: list[FeedEntry] = []
        self.refused = 0
        self._stage = stage
        self._reached: tuple[Any, ...] = ()

    def reader(self, reader_id: int, *, rounds: int) -> Callable[[Storage], Awaitable[None]]:
        """A reader who takes the slice, whoever has it, reads a little, and commits."""

        async def act(storage: Storage) -> None:
            for _ in range(rounds):
                _, (mine,) = await storage.hold_slices(_NAME, reader_id, host="here", lease_age=_LOST)
                part = await storage.read_feed(_WANTED, mine.place, limit=2)
                is_mine = await storage.commit_slice(mine.key, part.place, known=mine.place)
                (row,) = self._stage.tables.execute("SELECT lease FROM subscription_slices")
                assert is_mine == (row["lease"] == mine.key.lease)
                self.committed += part.entries if is_mine else []
                self.refused += not is_mine

        return act

    def look(self) -> None:
        """See that the checkpoint has not gone back."""
        (row,) = self._stage.tables.execute(
            "SELECT coalesce(walk, %s), walk_n, position, item, n FROM subscription_slices", 2**62
        )
        reached = tuple(row.values())
        assert reached >= self._reached
        self._reached = reached


@pytest.mark.parametrize("walks", [False, True], ids=["in the feed", "in the walk"])
def test_two_readers_take_the_slice_from_each_other(stage: Stage, walks: bool) -> None:
    """What either commits and what is left is all there is, once, in order; the loser commits nothing."""
    refused = 0
    moves = [2, 4 if walks else 3, 1] * 2
    for order in orders("aaaaaaabbbbbbb", most=30):
        stage.empty()
        stage.run(_begin(stage.storage))
        beginning = stage.run(stage.storage.feed_head()).beginning
        stage.run(stage.storage.subscribed(_NAME, 1, beginning if walks else stage.first))
        journal = Journal(stage)
        cast = {
            name: Player(journal.reader(number, rounds=2), moves)
            for number, name in enumerate("ab", start=1)
        }
        stage.run(stage.play(cast, order, between=journal.look))
        refused += journal.refused
        stage.run(journal.reader(3, rounds=9)(stage.storage))
        wanted = [(name, *own) for name in "abc" for own in (("c", 0), ("e", 1), ("e", 2))]
        assert told(journal.committed) == wanted, order
    assert refused, "nobody has lost the slice"


# Operators beside a reader.


class Aside(NamedTuple):
    """A subscription of which three entries are parked: two of one process, one of another."""

    held: HeldSlice
    numbers: list[int]
    behind: FeedPlace

    @property
    def more(self) -> Parked:
        """What comes next, which is of the first process."""
        return _parked(self.behind, "a", 3)


async def _parked_before(storage: Storage, *, wanted: bool) -> Aside:
    head = await storage.feed_head()
    await storage.subscribed(_NAME, 1, head.first_place)
    _, (mine,) = await storage.hold_slices(_NAME, 1, host="here", lease_age=_HELD)
    parks = [_parked(mine.place, *each) for each in (("a", 1), ("a", 2), ("b", 1))]
    assert await storage.commit_slice(mine.key, mine.place, known=mine.place, parks=parks)
    numbers = [each.parked_no for each in await storage.parked_entries(_NAME, behind=0, limit=9)]
    if wanted:
        await storage.act_on_parked(_NAME, numbers[0], act=None)
    return Aside(mine, numbers, head.last_place)


def _parked(place: FeedPlace, process_id: str, n: int) -> Parked:
    entry = FeedEntry(place, ord(process_id), "e", "shop", process_id, n, 1, T0, None, None)
    return Parked(entry, f"{process_id}-{n}", 1, "no")


async def _delivers(storage: Storage, aside: Aside) -> bool:
    """The first one is done, and another of its process is put aside."""
    return await storage.commit_slice(
        aside.held.key, aside.behind, known=aside.held.place, parks=[aside.more], done=aside.numbers[:1]
    )


async def _fails(storage: Storage, aside: Aside) -> bool:
    """The first one has failed again."""
    return await storage.fail_parked(aside.held.key, aside.numbers[0], "again")


async def _retries_first(storage: Storage, aside: Aside) -> object:
    return await storage.act_on_parked(_NAME, aside.numbers[0], act=None)


async def _retries_second(storage: Storage, aside: Aside) -> object:
    return await storage.act_on_parked(_NAME, aside.numbers[1], act=None)


async def _retries_all(storage: Storage, aside: Aside) -> object:
    return await storage.act_on_parked(_NAME, None, act=None)


async def _skips_second(storage: Storage, aside: Aside) -> object:
    return await storage.act_on_parked(_NAME, aside.numbers[1], skip=True, act=None)


async def _moves(storage: Storage, aside: Aside) -> object:
    return await storage.move_subscription(_NAME, aside.held.place, act=None)


async def _removes(storage: Storage, aside: Aside) -> object:
    return await storage.remove_subscription(_NAME, act=None)


Aiming = Callable[[Storage, Aside], Awaitable[Any]]


def _side_by_side(
    stage: Stage, order: str, reader: Aiming, operator: Aiming, *, wanted: bool
) -> tuple[Aside, bool]:
    """Let them act; return what they met on, and whether the reader had its slice."""
    stage.empty()
    stage.run(_begin(stage.storage))
    aside = stage.run(_parked_before(stage.storage, wanted=wanted))
    cast = {
        "r": Player(lambda storage: reader(storage, aside), [1]),
        "o": Player(lambda storage: operator(storage, aside), [1, 1, 1]),
    }
    return aside, stage.run(stage.play(cast, order))["r"]


_ACTIONS = [_retries_first, _retries_second, _retries_all, _skips_second]


@pytest.mark.parametrize("wanted", [False, True], ids=["waits", "wanted"])
@pytest.mark.parametrize("operator", _ACTIONS)
@pytest.mark.parametrize("reader", [_delivers, _fails])
def test_an_act_on_what_is_parked(stage: Stage, reader: Aiming, operator: Aiming, wanted: bool) -> None:
    """Nothing is lost and nothing comes twice; nothing is tried before an earlier one that waits."""
    for order in orders("rrooo", most=9):
        aside, is_mine = _side_by_side(stage, order, reader, operator, wanted=wanted)
        assert is_mine, order
        rows = stage.tables.execute(
            "SELECT parked_no, process_id, n, action, attempts FROM parked ORDER BY parked_no"
        )
        left = [(row["process_id"], row["n"]) for row in rows]
        delivered = reader is _delivers
        assert left == ([("a", 2), ("b", 1), ("a", 3)] if delivered else [("a", 1), ("a", 2), ("b", 1)])
        actions = {(row["process_id"], row["n"]): row["action"] for row in rows}
        assert actions["b", 1] == ("r" if operator is _retries_all else None), order
        if operator is _skips_second:
            assert actions["a", 2] == "s", order
        own = [row["action"] for row in rows if row["process_id"] == "a"]
        waits = own.index(None) if None in own else len(own)
        assert set(own[waits:]) <= {None, "s"}, (order, own)
        if not delivered:
            assert rows[0]["attempts"] == 2
        if delivered and wanted:
            # What was wanted before stays so, and what comes behind it is wanted, too.
            assert None not in own, (order, own)
        assert _place(stage) == (aside.behind if delivered else aside.held.place)[:3]


def _place(stage: Stage) -> tuple[int, int, int]:
    (row,) = stage.tables.execute("SELECT position, item, n FROM subscription_slices")
    return row["position"], row["item"], row["n"]


@pytest.mark.parametrize("reader", [_delivers, _fails])
def test_a_move_beside_a_commit(stage: Stage, reader: Aiming) -> None:
    """Its readers go on from the new place, with nothing parked, whichever was first."""
    for order in orders("rroooo", most=15):
        aside, _ = _side_by_side(stage, order, reader, _moves, wanted=True)
        assert _place(stage) == aside.held.place[:3], order
        assert stage.tables.execute("SELECT name FROM parked") == [], order
        assert not stage.run(reader(stage.storage, aside)), order


@pytest.mark.parametrize("reader", [_delivers, _fails])
def test_a_removal_beside_a_commit(stage: Stage, reader: Aiming) -> None:
    """Nothing of the subscription is left, whichever was first."""
    for order in orders("rroooo", most=15):
        aside, _ = _side_by_side(stage, order, reader, _removes, wanted=True)
        for table in ("subscriptions", "subscription_slices", "subscription_readers", "parked"):
            assert stage.tables.execute(f"SELECT name FROM {table}") == [], (order, table)
        assert not stage.run(reader(stage.storage, aside)), order
