"""Writers of feeding namespaces, those who number, and those who read, statement by statement.

Rule: whatever the order, what is committed is read once, in the order of its process, and nothing else is.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from progressor.model import Decision, Disposition, TaskType
from progressor.storage.feed.places import FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedFilter
from progressor.storage.operations import Storage
from progressor.storage.steps.save import save
from progressor.storage.values import Saved
from tests.interleavings.feed_stage import ALL, OTHER, Own, Player, Stage, by_process, orders, told
from tests.support import NS, SECOND, T0, Held, collect, events, held, removed, request, resume

_LATER = T0 + timedelta(hours=2)
_OF = {"p1": NS, "p2": OTHER}
_WORKER = 10
_BEGUN: Own = [("c", 0), ("e", 1)]


def _goes_on(count: int) -> Decision:
    return resume(events=events(count), feeds=True)


def _ends(count: int) -> Decision:
    return removed(events=events(count), feeds=True)


def _told_of(decision: Decision, *, behind: int = 1) -> Own:
    """What is told of a step: its events, and then what it did."""
    own = [("e", behind + place) for place, _ in enumerate(decision.events, start=1)]
    return [*own, ("r" if decision.disposition is Disposition.REMOVE else "s", 0)]


async def _running(storage: Storage) -> list[Held]:
    """Two processes of two namespaces, each with an event that has a position and a call that runs."""
    asked = [request(name, TaskType.INIT, namespace=namespace) for name, namespace in _OF.items()]
    begun = await storage.prepare_init(asked, now=T0)
    await storage.save_result([held(each).step(_goes_on(1)) for each in begun], now=T0)
    asked = [request(name, namespace=namespace, worker_id=_WORKER) for name, namespace in _OF.items()]
    calls = await storage.prepare_call(asked, now=T0)
    await storage.feed_head()
    return [held(each) for each in calls]


def _saves(step: Held, decision: Decision) -> Player:
    """A writer whose step is under way, and then committed."""

    async def act(storage: Storage) -> Any:
        return (await storage.save_result([step.step(decision)], now=T0 + SECOND))[0]

    # The lock, perhaps the removal, the end of the step, and the feed.
    return Player(act, [4 if decision.disposition is Disposition.REMOVE else 3])


def _begins(name: str, count: int) -> Player:
    """A writer of two transactions: of a new process, and of its first step."""

    async def act(storage: Storage) -> None:
        (begun,) = await storage.prepare_init([request(name, TaskType.INIT)], now=T0)
        await storage.save_result([held(begun).step(_goes_on(count))], now=T0 + SECOND)

    return Player(act, [2, 4])


async def _number(storage: Storage) -> None:
    await storage.feed_head()


# The lock of the head, the numbers, and their commit; or all at once.
_NUMBERS, _NUMBERS_AT_ONCE = Player(_number, [1, 1]), Player(_number)


class Reader:
    """A reader who looks a few times, at a few entries at once, and numbers what it finds."""

    def __init__(self, place: FeedPlace, *, reads: int, limit: int, wanted: FeedFilter = ALL) -> None:
        self.entries: list[FeedEntry] = []
        self._place, self._reads, self._limit, self._wanted = place, reads, limit, wanted

    async def read(self, storage: Storage) -> None:
        for _ in range(self._reads):
            part = await storage.read_feed(self._wanted, self._place, limit=self._limit)
            assert part.gap is None
            self.entries += part.entries
            self._place = part.place

    async def rest(self, storage: Storage) -> list[FeedEntry]:
        """Read to the end; return all that was read."""
        while True:
            part = await storage.read_feed(self._wanted, self._place)
            self.entries += part.entries
            self._place = part.place
            if not part.has_more and part.place.walk is None:
                return self.entries


def _played(stage: Stage, order: str, cast: dict[str, Player]) -> tuple[dict[str, Any], dict[str, Own]]:
    """The results of the players, and what is told of each process."""
    results = stage.run(stage.play(cast, order))
    return results, by_process(stage.run(stage.told()))


@pytest.mark.parametrize("first", [_goes_on(2), _ends(2)], ids=["goes on", "ends"])
def test_commits_in_every_order(stage: Stage, first: Decision) -> None:
    """Two writers, whichever commits first, and one who numbers in between: each event is read once.

    What ends a process is read behind its last events.
    """
    second = _goes_on(1)
    wanted = {"p1": _BEGUN + _told_of(first), "p2": _BEGUN + _told_of(second)}
    for order in orders("aabbnnn", most=90):
        stage.empty()
        one, other = stage.run(_running(stage.storage))
        cast = {"a": _saves(one, first), "b": _saves(other, second), "n": _NUMBERS}
        assert _played(stage, order, cast)[1] == wanted, order


def test_two_who_number(stage: Stage) -> None:
    """One numbers, and one numbers and reads, beside two writers: both readers read each event once."""
    wanted = {"p1": _BEGUN + _told_of(_goes_on(1)), "p2": _BEGUN + _told_of(_ends(1))}
    for order in orders("aabbnnnrrrr", most=90):
        stage.empty()
        one, other = stage.run(_running(stage.storage))
        reader = Reader(stage.first, reads=2, limit=3)
        cast = {
            "a": _saves(one, _goes_on(1)),
            "b": _saves(other, _ends(1)),
            "n": _NUMBERS,
            "r": Player(reader.read, [1, 1, 3]),
        }
        assert _played(stage, order, cast)[1] == wanted, order
        assert stage.run(reader.rest(stage.storage)) == stage.seen, order


def test_a_step_that_is_rolled_back(stage: Stage) -> None:
    """Nothing is read of it; once it is saved again, it is read once, behind what was committed before."""
    decision = _goes_on(2)
    wanted = {"p1": _BEGUN + _told_of(decision), "p2": _BEGUN + _told_of(_goes_on(1))}
    for order in orders("aaabbnnn", most=60):
        stage.empty()
        one, other = stage.run(_running(stage.storage))
        cast = {"a": _fails_at_first(one, decision), "b": _saves(other, _goes_on(1)), "n": _NUMBERS}
        assert _played(stage, order, cast)[1] == wanted, order


class _Lost(Exception):
    """The end of a transaction that is rolled back."""


def _fails_at_first(step: Held, decision: Decision) -> Player:
    async def act(storage: Storage) -> None:
        with suppress(_Lost):
            async with storage._connections.acquire() as session, session.transaction():
                await save(session, False, steps=[step.step(decision)], hints=None, now=T0, tried=False)
                raise _Lost
        await storage.save_result([step.step(decision)], tried=True, now=T0 + SECOND)

    return Player(act, [3, 4])


# What meets a step on its own process.


def _takes_over(step: Held) -> Player:
    """Another worker gets the task, and ends it with an event of its own; the first one does not know."""

    async def act(storage: Storage) -> bool:
        await storage.hand_back([step.task])
        found = await storage.capture_task(step.ref, worker_id=2, lease=2, now=_LATER)
        if found is None:
            return False
        (result,) = await storage.save_result([held(found).step(_goes_on(3))], now=_LATER)
        return isinstance(result, Saved)

    return Player(act, [1, 2, 2, 1])


def _removes(step: Held) -> Player:
    """A caller removes the process by hand."""

    async def act(storage: Storage) -> bool:
        return (await storage.remove(NS, step.task.process_id, now=_LATER)).existed

    return Player(act, [1, 1, 1, 1])


def _buries(step: Held) -> Player:
    """The worker counts as dead, and its process breaks."""

    async def act(storage: Storage) -> bool:
        found = await collect(storage, _LATER)
        return any(each.process_id == step.task.process_id for each in found)

    return Player(act, [2, 2, 2, 1])


_OTHERS = {
    "taken over": (_takes_over, [("e", 2), ("e", 3), ("e", 4), ("s", 0)]),
    "removed": (_removes, [("r", 0)]),
    "buried": (_buries, [("b", 0)]),
}


@pytest.mark.parametrize("first", [_goes_on(1), _ends(1)], ids=["goes on", "ends"])
@pytest.mark.parametrize("other", _OTHERS)
def test_a_step_that_may_be_fenced_off(stage: Stage, other: str, first: Decision) -> None:
    """It is read if it was saved, and else nothing of it; what a removal by hand ends is read before."""
    make, its = _OTHERS[other]
    for order in orders("aaabbbbbn", most=40):
        stage.empty()
        step, _ = stage.run(_running(stage.storage))
        saving = Player(_saves(step, first).act, [1, 2])
        cast = {"a": saving, "b": make(step), "n": _NUMBERS_AT_ONCE}
        results, found = _played(stage, order, cast)
        is_saved = isinstance(results["a"], Saved)
        own = (_told_of(first) if is_saved else []) + (its if results["b"] else [])
        assert found["p1"] == _BEGUN + own, (order, results)


# A reader who begins at the beginning.


@pytest.mark.parametrize(("reads", "limit"), [(6, 1), (2, 5)], ids=["in many reads", "in few reads"])
def test_a_walk_while_others_write(stage: Stage, reads: int, limit: int) -> None:
    """What was stored and what comes meanwhile is read once, in order, whatever the walk had reached."""
    wanted = {
        "p1": [("e", 1), ("e", 2), ("e", 3)],
        "p2": [("e", 1), ("e", 2), ("e", 3), ("r", 0)],
        "p3": [("e", 1)],
    }
    for order in orders("aabbccc" + "w" * 4 * min(reads, 3), most=60):
        stage.empty()
        one, other = stage.run(_running(stage.storage))
        beginning = stage.run(stage.storage.feed_head()).beginning
        reader = Reader(beginning, reads=reads, limit=limit, wanted=FeedFilter(["e", "r"]))
        cast = {
            "a": _saves(one, _goes_on(2)),
            "b": _saves(other, _ends(2)),
            "c": _begins("p3", 1),
            "w": Player(reader.read, [1, 1, 1, 1] * 3),
        }
        stage.run(stage.play(cast, order))
        assert by_process(told(stage.run(reader.rest(stage.storage)))) == wanted, order
