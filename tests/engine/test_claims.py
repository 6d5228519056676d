"""The claims of a pool in groups: they take turns around them, and leave what others serve to them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from progressor import Namespace, Rate
from progressor.errors import StorageUnavailable
from progressor.storage import Kind
from progressor.storage.steps.held import GroupsWithRoom
from progressor.worker.claims import Claims
from progressor.worker.group_turn import GroupTurn
from tests.support import NS


class Task:
    """What a claim takes from a group."""

    def __init__(self, group: int, size: int) -> None:
        self.group_no, self.size = group, size

    @property
    def process(self) -> Task:
        return self


class Groups:
    """Storage in which `waiting` tasks wait in each group; a look reaches two groups."""

    def __init__(self, waiting: dict[int, int], left: tuple[str, ...] = (), size: int = 1) -> None:
        self.waiting = waiting
        self._left = left
        self._size = size
        self.looks: list[int] = []
        self.asked: list[list[int]] = []
        self.calls: list[Task] = []
        self.fails = False
        self.releases, self.is_held = 0, False

    def left(self) -> tuple[str, ...]:
        return self._left

    async def search(self, kind: Kind, *_: Any, **__: Any) -> list[Task]:
        return list(self.calls) if kind == "calls" else []

    async def next_task(self, _process_no: int) -> None:
        return None

    async def ripen(self, _namespace: str, *, limit: int) -> int:
        self.releases += 1
        return 0 * limit

    async def queue_timers(self, _namespace: str, *, limit: int) -> int:
        return 0 * limit

    async def holds(self, _namespace: str) -> bool:
        return self.is_held

    async def groups(self, _namespace: str, *, limit: int) -> list[Task]:
        return [Task(number, 1) for number in self.waiting][:limit]

    async def groups_with_room(self, _namespace: str, *, after: int = 0, **_: Any) -> GroupsWithRoom:
        if self.fails:
            raise StorageUnavailable("an outage")
        self.looks.append(after)
        looked = [number for number in sorted(self.waiting) if number > after][:2]
        last = looked[-1] if len(looked) == 2 else None
        return GroupsWithRoom([number for number in looked if self.waiting[number]], last)

    async def room_in_groups(self, _namespace: str, groups: Sequence[int], **_: Any) -> GroupsWithRoom:
        return GroupsWithRoom([number for number in groups if self.waiting[number]], None)

    async def search_groups(
        self, _namespace: str, limit: int, *, groups: Sequence[int], **_: Any
    ) -> list[Task]:
        self.asked.append(list(groups))
        taken = [Task(number, self._size) for number in groups for _ in range(self.waiting[number])][:limit]
        for each in taken:
            self.waiting[each.group_no] -= 1
        return taken


class Case:
    """Claims in such groups, and whether they have rung for the next one."""

    def __init__(self, waiting: dict[int, int], *, limited: bool = True, **more: Any) -> None:
        self.storage: Any = Groups(waiting, **more)
        self.begin({"group": str, "group_limit": 9} if limited else {})

    def begin(self, options: dict[str, Any]) -> None:
        self.rung = False
        self.rests: list[tuple[Kind, timedelta]] = []
        self.alarms: list[timedelta] = []
        namespace: Namespace[Any] = Namespace(NS, **options)
        bells: Any = self
        self.claims = Claims(namespace, self.storage, self.storage, bells, worker_id=1)

    def ring(self, kind: Kind) -> None:
        """Note that there is to be another claim."""
        assert kind
        self.rung = True

    def rest(self, kind: Kind, delay: timedelta) -> None:
        """Note for how long there is to be none."""
        self.rests.append((kind, delay))

    def expect(self, delay: timedelta) -> None:
        """Note when groups are to be looked at."""
        self.alarms.append(delay)

    async def claim(self, limit: int = 9, room: int = 100) -> list[int]:
        """The groups of what one claim takes."""
        self.rung = False
        found: Sequence[Any] = await self.claims.search("calls", limit, room)
        return [each.group_no for each in found]

    async def claim_all(self, limit: int = 9) -> list[int]:
        """The same of all claims that follow each other."""
        found = await self.claim(limit)
        while self.rung:
            found += await self.claim(limit)
        return found


async def test_claims_go_around_all_groups_once() -> None:
    """A claim looks at some, and rings for the next one; then there is no look before something rings."""
    case = Case({1: 1, 2: 0, 3: 1, 4: 0, 5: 1})
    assert [await case.claim() for _ in range(3)] == [[1], [3], [5]]
    assert case.storage.looks == [0, 2, 4]
    assert not case.rung
    assert await case.claim() == []
    assert case.storage.looks == [0, 2, 4]
    case.claims.look_around()
    case.storage.waiting[4] = 1
    assert await case.claim_all() == [4]
    assert case.storage.looks[3:] == [0, 2, 4]


async def test_a_turn_that_begins_amid_another_reaches_all() -> None:
    """What came behind the last look is found on the way around."""
    case = Case(dict.fromkeys(range(1, 8), 0))
    await case.claim()
    await case.claim()
    case.storage.waiting[1] = 1
    case.claims.look_around()
    assert await case.claim_all() == [1]
    assert case.storage.looks == [0, 2, 4, 6, 0, 2]


@pytest.mark.parametrize("page", [1, 2, 3, 9])
@pytest.mark.parametrize("first", range(7))
def test_a_turn_comes_to_its_end(page: int, first: int) -> None:
    """Wherever it began, be that group there or not, it has looked at all of them then."""
    groups = [1, 3, 4, 6]
    turn, looked = GroupTurn(first), list[int]()
    while not turn.is_over:
        found = [number for number in groups if number > turn.after][:page]
        looked += found
        turn.went(found[-1] if len(found) == page else None)
    assert set(looked) == set(groups)
    assert len(looked) <= len(groups) + page


async def test_groups_take_turns() -> None:
    """A claim goes on behind the group that the last one has served, however much waits there."""
    case = Case(dict.fromkeys(range(1, 6), 9))
    assert [(await case.claim(1))[0] for _ in range(7)] == [1, 2, 3, 4, 5, 1, 2]
    assert await case.claim(3) == [3, 3, 3]
    assert await case.claim(3) == [4, 4, 4]


async def test_no_more_groups_are_locked_than_there_are_slots_for() -> None:
    """Each of them has a task."""
    case = Case({1: 1, 2: 1, 3: 1})
    await case.claim(1)
    await case.claim(2)
    assert case.storage.asked == [[1], [2, 3]]


async def test_where_a_step_has_ended_is_asked_without_a_turn() -> None:
    """Its group has room now; the others are not looked at."""
    case = Case({1: 0, 2: 1, 3: 3, 4: 0})
    await case.claim_all()
    case.storage.looks.clear()
    case.storage.asked.clear()
    case.storage.waiting |= {2: 1, 3: 2}
    case.claims.leave(3)
    assert await case.claim(1) == [3]
    # There may be more room than there were slots.
    assert await case.claim(1) == [3]
    assert await case.claim(1) == []
    assert await case.claim(1) == []
    # Nothing is locked where nothing waits.
    assert case.storage.asked == [[3], [3]]
    assert case.storage.looks == []
    # If the group is not known, it may be any.
    case.claims.leave(None)
    assert await case.claim_all() == [2]


async def test_the_turn_comes_before_where_a_step_has_ended() -> None:
    """Or a group in which much waits would keep all slots."""
    case = Case({1: 9, 2: 1})
    assert await case.claim(1) == [1]
    case.claims.leave(1)
    assert await case.claim(1) == [2]
    assert await case.claim(2) == [1, 1]


async def test_a_claim_takes_no_more_than_it_has_room_for() -> None:
    """Neither tasks nor bytes; what is left is claimed later."""
    case = Case({1: 9, 2: 9, 3: 9}, size=50)
    assert await case.claim(4, 1000) == [1, 1, 1, 1]
    # The storage of this test gives more bytes than there is room for, as a large value is.
    assert await case.claim(100, 1) == [2] * 9 + [3] * 9
    assert await case.claim_all(1) == [1] * 5


async def test_one_task_for_a_lent_slot_is_looked_for_in_all_groups() -> None:
    """Beside the claims, whose turn goes on where it was."""
    case = Case({1: 0, 2: 0, 3: 0, 4: 0, 5: 1})
    await case.claim()
    found: Any = await case.claims.next_of(7)
    assert found.group_no == 5
    assert await case.claims.next_of(7) is None
    case.storage.waiting[5] = 1
    assert await case.claim_all() == [5]


async def test_while_others_serve_a_function_they_claim_in_groups() -> None:
    """This worker would take its requests too, and hand them back."""
    case = Case({1: 1}, left=("call new",))
    assert await case.claim() == []
    assert (case.storage.looks, case.rung) == ([], False)


@pytest.mark.parametrize("limited", [False, True])
async def test_what_is_held_is_looked_for(limited: bool) -> None:
    """By each claim of timers; without limits until nothing is held."""
    case = Case({}, limited=limited)
    case.storage.is_held = True
    for _ in range(2):
        await case.claims.release_due("timers")
    case.storage.is_held = False
    for _ in range(3):
        await case.claims.release_due("timers")
    assert case.storage.releases == (5 if limited else 3)
    case.claims.look()
    await case.claims.release_due("timers")
    assert case.storage.releases == (6 if limited else 4)


async def test_what_was_claimed_before_an_outage_is_run() -> None:
    """The look at groups fails, and what the claim has taken already is in its hands."""
    case = Case({1: 1, 2: 1})
    task = Task(0, 1)
    case.storage.calls = [task]
    case.storage.fails = True
    assert await case.claims.search("calls", 9, 100) == [task]
    assert case.rung
    case.storage.calls = []
    with pytest.raises(StorageUnavailable):
        await case.claim()
    case.storage.fails = False
    assert await case.claim() == [1, 2]


# By rates.

TEN_A_SECOND = Rate(10, per=timedelta(seconds=1))


class RatedGroups(Groups):
    """Storage of a namespace whose rate admits `admits` more tasks, and that of a group `admits_in`.

    `rest` is how long the namespace, or a group, is said to rest.
    """

    def __init__(self, waiting: dict[int, int], *, requests: int = 0, timers: int = 0) -> None:
        super().__init__(waiting)
        self.requests, self.timers = requests, timers
        self.admits = 100
        self.admits_in: dict[int, int] = {}
        self.rest: timedelta | None = None
        self.is_out = False

    def _taken(self, count: int) -> int:
        taken = min(count, self.admits)
        self.admits -= taken
        return taken

    async def search(self, kind: Kind, _namespace: str, limit: int, **_: Any) -> list[Task]:
        waiting = self.requests if kind == "calls" else self.timers
        taken = self._taken(min(limit, waiting))
        if kind == "calls":
            self.requests -= taken
        else:
            self.timers -= taken
        return [Task(0, 1)] * taken

    def _rested(self, look: GroupsWithRoom) -> GroupsWithRoom:
        with_room = [number for number in look.group_nos if self.admits_in.get(number, 9)]
        rest = self.rest if len(with_room) < len(look.group_nos) else None
        return GroupsWithRoom(with_room, look.last, rest)

    async def groups_with_room(self, _namespace: str, *, after: int = 0, **_: Any) -> GroupsWithRoom:
        return self._rested(await super().groups_with_room(_namespace, after=after))

    async def room_in_groups(self, _namespace: str, groups: Sequence[int], **_: Any) -> GroupsWithRoom:
        return self._rested(await super().room_in_groups(_namespace, groups))

    async def search_groups(
        self, _namespace: str, limit: int, *, groups: Sequence[int], **_: Any
    ) -> list[Task]:
        taken: list[Task] = []
        for number in groups:
            there = min(self.waiting[number], self.admits_in.get(number, 9), limit - len(taken))
            count = self._taken(there)
            if number in self.admits_in:
                self.admits_in[number] -= count
            taken += await super().search_groups(_namespace, count, groups=[number])
        return taken

    async def rests(self, _namespace: str) -> timedelta | None:
        if self.is_out:
            raise StorageUnavailable("an outage")
        return self.rest


class RatedCase(Case):
    """Claims in a namespace with a rate of its own, or one of its groups."""

    def __init__(
        self, waiting: dict[int, int], *, requests: int = 0, timers: int = 0, **rates: Any
    ) -> None:
        self.storage = RatedGroups(waiting, requests=requests, timers=timers)
        self.begin(({"group": str} if waiting else {}) | (rates or {"rate": TEN_A_SECOND}))


async def test_a_pool_rests_until_the_rate_admits_more() -> None:
    """If it found less than it has slots for; not beyond an interval, whatever the tables say."""
    case = RatedCase({}, requests=9)
    case.storage.admits, case.storage.rest = 4, timedelta(milliseconds=70)
    assert len(await case.claim(4)) == 4
    assert case.rests == []
    assert await case.claim(4) == []
    case.storage.rest = timedelta(days=1)
    await case.claims.search("timers", 4, 100)
    assert case.rests == [("calls", timedelta(milliseconds=70)), ("timers", TEN_A_SECOND.interval)]
    case.storage.rest = None
    await case.claim(4)
    assert len(case.rests) == 2


@pytest.mark.parametrize(("burst", "delay"), [(1000, 10_000), (8, 4_000), (1, 300)])
async def test_at_a_high_rate_it_rests_for_several(burst: int, delay: int) -> None:
    """As long as half of the burst bears it."""
    case = RatedCase({}, rate=Rate(1000, per=timedelta(seconds=1), burst=burst))
    case.storage.rest = timedelta(microseconds=300)
    await case.claim(4)
    assert case.rests == [("calls", timedelta(microseconds=delay))]


async def test_an_outage_loses_nothing_that_was_claimed_by_a_rate() -> None:
    """The next claim meets it."""
    case = RatedCase({}, requests=2)
    case.storage.is_out = True
    assert len(await case.claim(4)) == 2
    assert case.rung


async def test_requests_and_timers_take_turns_by_a_rate() -> None:
    """Those who got nothing last go first."""
    case = RatedCase({}, requests=9, timers=9)
    took: list[Kind] = []
    for _ in range(4):
        case.storage.admits = 1
        took += [kind for kind in case.claims.kinds() if await case.claims.search(kind, 4, 100)]
    assert took == ["calls", "timers", "calls", "timers"]
    without = Case({}, limited=False)
    without.storage.calls = [Task(0, 1)]
    await without.claim()
    assert without.claims.kinds() == ("calls", "timers")


async def test_groups_and_others_take_turns_by_a_rate() -> None:
    """As do the groups among themselves: none is passed over, whatever the rate admits at once."""
    case = RatedCase({1: 9, 2: 9}, requests=9)
    took: list[int] = []
    for _ in range(6):
        case.storage.admits = 1
        took += await case.claim(4)
        assert case.rung
    assert took == [0, 1, 0, 2, 0, 1]


async def test_a_lent_slot_waits_for_the_rate_of_the_namespace() -> None:
    """Its look ends, though groups have room."""
    case = RatedCase({1: 1, 2: 1, 3: 1})
    case.storage.admits = 0
    assert await case.claims.next_of(7) is None
    case.storage.admits = 1
    assert await case.claims.next_of(7) is not None


async def test_a_group_that_rests_is_looked_at_when_it_may_go_on() -> None:
    """Also one whose last admitted task was just claimed; the namespace does not rest meanwhile."""
    case = RatedCase({1: 3}, group_rate=TEN_A_SECOND)
    case.storage.admits_in, case.storage.rest = {1: 2}, timedelta(milliseconds=90)
    assert await case.claim() == [1, 1]
    assert case.alarms == [timedelta(milliseconds=90)]
    assert not case.rung
    case.claims.leave(1)
    assert await case.claim() == []
    assert case.alarms == [timedelta(milliseconds=90)] * 2
    case.storage.admits_in = {1: 1}
    case.claims.leave(1)
    assert await case.claim_all() == [1]
    assert not case.rung
    assert case.rests == []


async def test_where_steps_have_ended_the_rate_of_the_namespace_holds_too() -> None:
    """A group that it lets wait is asked again."""
    case = RatedCase({1: 0, 2: 0})
    await case.claim_all()
    case.storage.waiting |= {1: 1, 2: 1}
    case.storage.admits = 1
    case.claims.leave(1)
    case.claims.leave(2)
    assert await case.claim() == [1]
    assert case.rung
    case.storage.admits = 1
    assert await case.claim_all() == [2]
    assert not case.rung
