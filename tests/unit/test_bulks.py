"""The progress of a bulk, round by round, in a world of broken processes that hypothesis makes up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, strategies as st
from hypothesis.strategies import DataObject

from progressor.bulks import COUNTS, MOST_UNDER_WAY, BulkLook, BulkStatus, Candidate, Ended, HeldBulk

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, HOURS = timedelta(seconds=1), timedelta(hours=2)
PACES = st.timedeltas(timedelta(microseconds=50), timedelta(hours=1))


def held(**fields: Any) -> HeldBulk:
    bulk: dict[str, Any] = {
        "bulk_id": 1, "namespace": "ns", "status": BulkStatus.RUNNING, "created_at": T0, "ended_at": None,
        "rate": 1.0, "simple": False, "now": T0, "until_task": 1, "pace": SECOND, "args": None,
        "request_hash": b"", "cursor_at": None, "cursor_no": 0, "at_end": False, "paced_at": T0,
        "next_at": T0, "still_since": T0,
    }  # fmt: skip
    return HeldBulk(**bulk | fields)


def candidates(count: int, *, first: int = 1, matching: Sequence[int] = ()) -> list[Candidate]:
    """The rows of a look at `count` processes: the matching ones, and the last one besides."""
    rows = [
        Candidate(first + place - 1, f"p{first + place - 1}", T0, place, matches)
        for place in range(1, count + 1)
        for matches in (False, True)
        if (matches and place in matching) or (not matches and place == count)
    ]
    return sorted(rows, key=lambda row: (row.place, row.matches))


class World:
    """The processes that were broken, which of them match, and what became of their repairs."""

    def __init__(self, data: DataObject) -> None:
        self.data = data
        self.matching = data.draw(st.lists(st.booleans(), max_size=12))
        self.bulk = held(pace=data.draw(PACES))
        self.begun: list[int] = []
        self.tried: list[int] = []
        self.under_way = self.rounds = 0

    def run_round(self) -> dict[str, int]:
        """Run one round as storage does; return the new counts."""
        data, looks = self.data, self.data.draw(st.integers(1, 5))
        late = HOURS if self.is_late else data.draw(st.timedeltas(timedelta(), HOURS))
        self.rounds += 1
        before = self.bulk = replace(self.bulk, now=max(self.bulk.now, self.bulk.next_at) + late)
        if self.under_way and not self.is_late and data.draw(st.booleans()):
            return self._redo(before)
        ended = Ended(*self._ends())
        room = before.room(data.draw(st.integers(1, 4)))
        look = BulkLook(before.at_end)
        if room:
            look = BulkLook.of(self._rows(before.cursor_no, room, looks), room=room, looks=looks)
        begun = [each.process_no for each in look.chosen if data.draw(st.booleans())]
        done = data.draw(st.integers(0, len(begun)))
        self.tried += [each.process_no for each in look.chosen]
        self.begun += begun
        self.under_way += len(begun) - done
        self.bulk, new = before.advance(look, ended, begun=len(begun), done=done)
        return new

    def _redo(self, before: HeldBulk) -> dict[str, int]:
        """Run requests of repaired processes again: the repairs stay under way, and nothing else moves."""
        redone = self.data.draw(st.integers(0, self.under_way))
        self.bulk, new = before.redo_some(redone)
        assert new == dict.fromkeys(COUNTS, 0) | {"redone": redone}
        assert (self.bulk.place, self.bulk.at_end) == (before.place, before.at_end)
        assert not self.bulk.status.is_final
        assert (self.bulk.still_since > before.still_since) <= (redone > 0)
        return new

    @property
    def is_late(self) -> bool:
        """Return whether it is time that every repair ends and the pace holds nothing up."""
        return self.rounds > 20

    def _ends(self) -> list[int]:
        ends = [0, 0, 0, 0]
        while self.under_way and (self.is_late or self.data.draw(st.booleans())):
            ends[self.data.draw(st.integers(0, 3))] += 1
            self.under_way -= 1
        return ends

    def _rows(self, cursor: int, room: int, looks: int) -> list[Candidate]:
        places = self.matching[cursor : cursor + looks]
        matching = [place for place, matches in enumerate(places, start=1) if matches][:room]
        return candidates(len(places), first=cursor + 1, matching=matching)


@given(st.data())
def test_a_bulk_ends_once_all_is_counted(data: DataObject) -> None:
    """Each process is looked at once, in order, and a bulk ends exactly when nothing is left."""
    world = World(data)
    while not world.bulk.status.is_final:
        before, tried = world.bulk, len(world.tried)
        new = world.run_round()
        after = world.bulk
        assert {name: getattr(after, name) - getattr(before, name) for name in COUNTS} == new
        assert min(new.values()) >= 0
        assert after.cursor_no == before.cursor_no + new["looked_at"]
        assert all(before.cursor_no < number <= after.cursor_no for number in world.tried[tried:])
        assert after.under_way == world.under_way
        assert after.status.is_final == (after.at_end and not world.under_way)
        assert (after.ended_at is not None) == after.status.is_final
    assert world.bulk.status is BulkStatus.FINISHED
    assert world.bulk.looked_at == len(world.matching)
    assert world.tried == [number for number, matches in enumerate(world.matching, start=1) if matches]
    assert (world.bulk.begun, world.bulk.passed_by) == (
        len(world.begun),
        len(world.tried) - len(world.begun),
    )


@given(st.data())
def test_a_stopped_bulk_begins_nothing(data: DataObject) -> None:
    """After a stop it only counts, stays where it is, and ends with its last repair."""
    world = World(data)
    for _ in range(data.draw(st.integers(0, 5))):
        if not world.bulk.status.is_final:
            world.run_round()
    if not world.under_way:
        return
    world.bulk = replace(world.bulk, status=BulkStatus.STOPPING)
    stopped = world.bulk
    for _ in range(5):
        if world.bulk.status.is_final:
            break
        new = world.run_round()
        assert (new["looked_at"], new["begun"], world.bulk.place) == (0, 0, stopped.place)
        assert (world.bulk.status is BulkStatus.STOPPED) == (world.under_way == 0)
        assert world.bulk.status.is_final or world.bulk.next_at <= world.bulk.now + 5 * SECOND


@given(PACES, st.lists(st.timedeltas(timedelta(), timedelta(hours=2)), min_size=1, max_size=30))
def test_the_pace_is_kept(pace: timedelta, waits: list[timedelta]) -> None:
    """In no stretch of time more repairs begin than it allows, with a second's worth made up for."""
    bulk = held(pace=pace)
    begun: list[tuple[datetime, int]] = []
    for wait in waits:
        bulk = replace(bulk, now=bulk.next_at + wait)
        room = bulk.room(200)
        look = BulkLook.of(candidates(1000, matching=range(1, room + 1)), room=room, looks=1000)
        bulk, _ = bulk.advance(look if room else BulkLook(at_end=False), Ended(), begun=room, done=room)
        begun.append((bulk.now, room))
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            length = begun[last][0] - begun[first][0]
            many = sum(count for _, count in begun[first : last + 1])
            assert many <= 1 + (length + SECOND) / pace + 1e-6


@given(st.integers(0, MOST_UNDER_WAY + 5), st.integers(1, 300))
def test_so_many_are_under_way_at_most(under_way: int, most: int) -> None:
    """There is room for one repair at least while fewer are under way, and for none above that."""
    room = held(begun=under_way, paced_at=T0 - SECOND, pace=timedelta(microseconds=1)).room(most)
    assert under_way + room <= max(under_way, MOST_UNDER_WAY)
    assert (room > 0) == (under_way < MOST_UNDER_WAY)
    assert room <= most


def test_a_failed_round_passes_by_its_process() -> None:
    """The process counts as looked at; if none could be, the bulk waits at its place."""
    (row,) = candidates(1, first=7, matching=[])
    bulk, new = held().give_up(row, "damaged")
    assert (bulk.cursor_no, bulk.last_error, bulk.status) == (7, "p7: damaged", BulkStatus.RUNNING)
    assert new == dict.fromkeys(COUNTS, 0) | {"looked_at": 1, "passed_by": 1}
    again, new = bulk.give_up(None, "damaged")
    assert (again.place, again.last_error, any(new.values())) == (bulk.place, "damaged", False)
    assert again.next_at == bulk.now + 5 * SECOND
    assert again.still_since == bulk.still_since
