"""The claims of a pool in groups: they go around all groups, and leave what others serve to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from progressor import Namespace
from progressor.storage.steps.held import GroupsWithRoom
from progressor.worker.claims import Claims
from tests.support import NS


class Task:
    """What a claim takes from a group."""

    size = 1

    def __init__(self, group: int) -> None:
        self.group = group


class Groups:
    """Storage in which `waiting` tasks wait in each group; a look reaches two groups."""

    def __init__(self, waiting: dict[int, int], left: tuple[str, ...] = ()) -> None:
        self.waiting = waiting
        self._left = left
        self.looks: list[int] = []

    def left(self) -> tuple[str, ...]:
        return self._left

    async def search_calls(self, *_: Any, **__: Any) -> list[Any]:
        return []

    search_timers = search_calls

    async def groups_with_room(self, _namespace: str, *, after: int = 0) -> GroupsWithRoom:
        self.looks.append(after)
        looked = [number for number in sorted(self.waiting) if number > after][:2]
        last = looked[-1] if len(looked) == 2 else None
        return GroupsWithRoom([number for number in looked if self.waiting[number]], last)

    async def search_groups(
        self, _namespace: str, limit: int, *, groups: Sequence[int], **_: Any
    ) -> list[Task]:
        taken = [Task(number) for number in groups for _ in range(self.waiting[number])][:limit]
        for each in taken:
            self.waiting[each.group] -= 1
        return taken


def claims_of(storage: Any) -> Claims:
    namespace: Namespace[Any] = Namespace(NS, group=str, group_limit=9)
    return Claims(namespace, storage, storage, worker_id=1, ring=lambda _: None)


def groups_of(found: Sequence[Any]) -> list[int]:
    return [each.group for each in found]


async def test_a_claim_goes_around_all_groups_once() -> None:
    """Then it ends, whether it has found something or not."""
    storage = Groups({1: 1, 2: 0, 3: 1, 4: 0, 5: 1})
    claims = claims_of(storage)
    assert groups_of(await claims.search("calls", 9, 100)) == [1, 3, 5]
    assert storage.looks == [0, 2, 4]
    assert await claims.search("calls", 9, 100) == []
    assert storage.looks == [0, 2, 4, 0, 2, 4]


async def test_groups_take_turns() -> None:
    """A claim goes on behind the groups that the last one has looked at, to the end and from the start."""
    storage = Groups(dict.fromkeys(range(1, 6), 9))
    claims = claims_of(storage)
    first = [groups_of(await claims.search("calls", 1, 100))[0] for _ in range(3)]
    assert first == [1, 3, 5]
    storage.waiting = {1: 0, 2: 1, 3: 0, 4: 1, 5: 0}
    assert groups_of(await claims.search("calls", 9, 100)) == [2, 4]


async def test_a_claim_takes_no_more_than_it_has_room_for() -> None:
    """Neither tasks nor bytes."""
    claims = claims_of(Groups({1: 9, 2: 9, 3: 9}))
    assert len(await claims.search("calls", 4, 100)) == 4
    assert len(await claims.search("calls", 100, 1)) >= 1


async def test_while_others_serve_a_function_they_claim_in_groups() -> None:
    """This worker would take its requests too, and hand them back."""
    storage = Groups({1: 1}, left=("call new",))
    assert await claims_of(storage).search("calls", 9, 100) == []
    assert storage.looks == []
