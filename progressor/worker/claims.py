"""The claims of a pool: tasks that wait, as many as it has slots for.

Rule: a claim of timers first releases what was held until a time, and has due timers of groups wait for
room. In a namespace without limits only a step that lost its transaction, or another version of its code,
can have held something: there it is done after such a step and once in a while, until nothing is held. A
claim looks at a bounded number of groups, and rings for the next one if there are more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from progressor import metrics
from progressor.config import Rate
from progressor.errors import ProgressorError
from progressor.handlers.namespace import Namespace
from progressor.inputs import new_lease
from progressor.storage import KINDS, ROOM, Claimed, Kind, Storage, TaskRef
from progressor.worker.bells import Bells
from progressor.worker.foreign_functions import ForeignFunctions
from progressor.worker.group_turn import GroupTurn

# Tasks that one look releases.
_MOST_RELEASED = 1000
# A pool that rests because of a rate rests so long at least, if the burst bears that: at a high rate it
# claims several at once.
_REST = timedelta(milliseconds=10)
SCANNING = {"calls": metrics.CALLS_SCANNING, "timers": metrics.TIMERS_SCANNING}


class Claims:
    """The claims of the pool of one namespace; by its `bells` they ask for the next one."""

    def __init__(
        self,
        namespace: Namespace,
        storage: Storage,
        foreign: ForeignFunctions,
        bells: Bells,
        *,
        worker_id: int,
    ) -> None:
        self._name = namespace.name
        self._is_limited = namespace.holds
        self.in_groups = namespace.has_groups
        """True if processes may be in groups; learned if only another version of the code had any."""
        self._storage = storage
        self._foreign = foreign
        self._bells = bells
        self._worker_id = worker_id
        self._looks = True
        self._turn = GroupTurn()
        self._rates = namespace.rates
        # By a rate they take turns: the kind that took something last, and whether search_calls did.
        self._last: Kind = "timers"
        self._groups_first = False

    async def release_due(self, kind: Kind) -> bool:
        """Release what was held and is due, before a claim; return whether the claim may be fused.

        That is: no limit concerns it, and no function is left to others.
        """
        if kind == "timers":
            await self._release()
        return not (self.in_groups or self._rates.any or self._foreign.left())

    def look(self) -> None:
        """Have the next claims look for what is held, whether the namespace has limits or not."""
        self._looks = True
        self._turn.begin()

    def look_around(self) -> None:
        """Have the next claims look for room in all groups: more may wait there since the last turn."""
        self._turn.begin()

    def leave(self, group_no: int | None) -> None:
        """Have the next claim look for what waits in the group in which a step has ended, or in all."""
        if group_no is None:
            self._turn.begin()
        else:
            self._turn.leave(group_no)

    def kinds(self) -> Sequence[Kind]:
        """Return the kinds in the order of the next claims: calls first, or in turns by a rate."""
        return KINDS[::-1] if self._last == "calls" and self._rates.all is not None else KINDS

    async def search(self, kind: Kind, limit: int, room: int) -> list[Claimed]:
        """Claim tasks of a kind; `room` is in bytes."""
        began, left = time.monotonic(), self._foreign.left()
        # A claim in groups leaves nothing to others: while there are such functions, it is left to others.
        asks_groups = kind == "calls" and self.in_groups and not left
        found: list[Claimed] = []
        if asks_groups and self._groups_first and self._rates.all is not None:
            await self._add_from_groups(found, limit, room)
            asks_groups = False
        if len(found) < limit and _size(found) < room:
            await self._add(found, kind, limit, room - _size(found), left)
        if asks_groups and len(found) < limit and _size(found) < room:
            await self._add_from_groups(found, limit, room - _size(found))
        if found:
            self._last = kind
        if self._rates.all is not None and len(found) < limit:
            await self._note_rest(kind, self._rates.all)
        metrics.took(SCANNING[kind], began, self._name)
        return found

    async def _add(
        self, found: list[Claimed], kind: Kind, limit: int, room: int, left: Sequence[str]
    ) -> None:
        """Claim tasks that wait in no group."""
        try:
            more = await self._storage.search(
                kind,
                self._name,
                limit - len(found),
                worker_id=self._worker_id,
                lease=new_lease(),
                room=room,
                left=left,
                rates=self._rates,
            )
        except ProgressorError:
            # What was claimed before is run. If it is still so, the next claim fails.
            if not found:
                raise
            self._bells.ring(kind)
        else:
            found += more
            if kind == "calls":
                self._groups_first = bool(more)

    async def _note_rest(self, kind: Kind, rate: Rate) -> None:
        """Have the pool rest until the rate of its namespace lets the next step begin."""
        try:
            rest = await self._storage.rests(self._name)
        except ProgressorError:
            # What was claimed is run. If it is still so, the next claim fails.
            self._bells.ring(kind)
        else:
            if rest is not None:
                self._bells.rest(kind, _delay(rate, rest))

    def _expect(self, rest: timedelta | None) -> None:
        """Have groups looked at again once the first of those goes on that their rate lets rest."""
        if rest is not None and self._rates.group is not None:
            self._bells.expect(_delay(self._rates.group, rest))

    async def next_of(self, process_no: int) -> Claimed | None:
        """Claim the first request in the mailbox of a process; None if it cannot be claimed now.

        Where there are groups, that may be a task of another process that waits for longer.
        """
        if self._is_limited:
            await self._release()
        task_id = await self._storage.next_task(process_no)
        if task_id is None:
            return await self._longest_in_groups() if self.in_groups else None
        ref = TaskRef(self._name, process_no, task_id)
        return await self._storage.capture_task(
            ref, worker_id=self._worker_id, lease=new_lease(), rates=self._rates
        )

    async def _longest_in_groups(self) -> Claimed | None:
        """Claim one task that waits for room, in a whole turn; None if there is none."""
        turn, found, goes_on = GroupTurn(self._turn.after), list[Claimed](), True
        while not found and not turn.is_over and goes_on:
            goes_on = await self._search_groups(turn, found, 1, ROOM)
        return found[0] if found else None

    async def _add_from_groups(self, found: list[Claimed], limit: int, room: int) -> None:
        try:
            await self._search_groups(self._turn, found, limit, room)
        except ProgressorError:
            # What was claimed before is run. If it is still so, the next claim fails.
            if not found:
                raise
            self._bells.ring("calls")
        if not self._turn.is_over:
            self._bells.ring("calls")

    async def _search_groups(self, turn: GroupTurn, found: list[Claimed], limit: int, room: int) -> bool:
        """Claim tasks that wait for room: in the next groups of the turn, and where steps have ended.

        Return False if that ended before: no slots, no room for values, or the rate of the namespace.
        """
        reaches_end, has_rate = True, self._rates.all is not None
        while reaches_end and not turn.is_over:
            looked = await self._storage.groups_with_room(self._name, after=turn.after, rates=self._rates)
            self._expect(looked.rest)
            groups, last, _ = looked
            # Each gives a task: no more of them are locked than there are slots for.
            asked = groups[: limit - len(found)]
            more = await self._claim_in(asked, limit - len(found), room)
            found += more
            room -= _size(more)
            if more and (len(found) >= limit or room <= 0 or has_rate):
                turn.broke_off(max(held.process.group_no or 0 for held in more))
            if asked and (has_rate or len(found) >= limit or room <= 0):
                return False
            self._leave_served(turn, more)
            last = asked[-1] if len(asked) < len(groups) else last
            turn.went(last)
            reaches_end = last is None
        if left := turn.left(limit - len(found)):
            await self._search_left(turn, left, found, limit, room)
        return True

    async def _search_left(
        self, turn: GroupTurn, left: Sequence[int], found: list[Claimed], limit: int, room: int
    ) -> None:
        """Claim tasks that wait for room where steps have ended."""
        looked = await self._storage.room_in_groups(self._name, left, rates=self._rates)
        self._expect(looked.rest)
        more = await self._claim_in(looked.group_nos, limit - len(found), room)
        found += more
        if len(found) < limit and _size(more) < room:
            turn.took(left)
            if self._rates.all is not None and looked.group_nos:
                # Of these the rate of the namespace may have admitted none, or not all.
                for group_no in looked.group_nos:
                    turn.leave(group_no)
                self._bells.ring("calls")
            elif self._leave_served(turn, more):
                self._bells.ring("calls")

    def _leave_served(self, turn: GroupTurn, more: Sequence[Claimed]) -> bool:
        """Have groups asked again that have a rate and gave tasks: they may rest now, and more wait there.

        Return whether there are any.
        """
        served = {held.process.group_no for held in more} if self._rates.group is not None else set()
        for group_no in served:
            if group_no is not None:
                turn.leave(group_no)
        return bool(served)

    async def _claim_in(self, groups: Sequence[int], limit: int, room: int) -> list[Claimed]:
        if not groups:
            return []
        return await self._storage.search_groups(
            self._name,
            limit,
            groups=groups,
            worker_id=self._worker_id,
            lease=new_lease(),
            room=room,
            rates=self._rates,
        )

    async def _release(self) -> None:
        if not self._is_limited and not self._looks:
            return
        released = await self._storage.ripen(self._name, limit=_MOST_RELEASED)
        if self.in_groups or self._looks:
            queued = await self._storage.queue_timers(self._name, limit=_MOST_RELEASED)
            self.in_groups = self.in_groups or bool(await self._storage.groups(self._name, limit=1))
            released = max(released, queued)
        self._looks = not self._is_limited and await self._storage.holds(self._name)
        if released or self.in_groups:
            # Requests may be among them.
            self._turn.begin()
            self._bells.ring("calls")
        if released == _MOST_RELEASED:
            self._bells.ring("timers")


def _size(found: Sequence[Claimed]) -> int:
    """Return the bytes of the values of tasks."""
    return sum(held.size for held in found)


def _delay(rate: Rate, rest: timedelta) -> timedelta:
    """Return how long to wait for what a rate lets begin next, in `rest`."""
    return max(min(rest, rate.interval), min(_REST, rate.interval * (rate.burst // 2)))
