"""The claims of a pool: tasks that wait, as many as it has slots for.

Rule: a claim of timers first releases what was held until a time, and has due timers of groups wait for
room. In a namespace without limits, where only another version of its code can have held something, that is
done once in a while, and then until nothing is held. A claim looks at a bounded number of groups, and rings
for the next one if there are more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from progressor import metrics
from progressor.errors import ProgressorError
from progressor.handlers.namespace import Namespace
from progressor.model import new_lease
from progressor.storage import ROOM, Claimed, Kind, Storage, TaskRef
from progressor.worker.foreign_functions import ForeignFunctions
from progressor.worker.group_turn import GroupTurn

# Tasks that one look releases.
_MOST_RELEASED = 1000


class Claims:
    """The claims of the pool of one namespace; `ring` has it claim again tasks of a kind."""

    def __init__(
        self,
        namespace: Namespace,
        storage: Storage,
        foreign: ForeignFunctions,
        *,
        worker_id: int,
        ring: Callable[[Kind], None],
    ) -> None:
        self._name = namespace.name
        self._is_limited = namespace.is_limited
        self.in_groups = namespace.has_groups
        """True if processes may be in groups; learned if only another version of the code had any."""
        self._storage = storage
        self._foreign = foreign
        self._worker_id = worker_id
        self._ring = ring
        self._looks = True
        self._turn = GroupTurn()

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

    async def search(self, kind: Kind, limit: int, room: int) -> list[Claimed]:
        """Claim tasks of a kind; `room` is in bytes."""
        began, left = time.monotonic(), self._foreign.left()
        if kind == "timers":
            await self._release()
        search = self._storage.search_calls if kind == "calls" else self._storage.search_timers
        found = await search(
            self._name, limit, worker_id=self._worker_id, lease=new_lease(), room=room, left=left
        )
        room -= sum(held.size for held in found)
        # A claim in groups leaves nothing to others: while there are such functions, it is left to others.
        if kind == "calls" and self.in_groups and not left and len(found) < limit and room > 0:
            await self._add_from_groups(found, limit, room)
        histogram = metrics.CALLS_SCANNING if kind == "calls" else metrics.TIMERS_SCANNING
        metrics.took(histogram, began, self._name)
        return found

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
        return await self._storage.capture_task(ref, worker_id=self._worker_id, lease=new_lease())

    async def _longest_in_groups(self) -> Claimed | None:
        """Claim one task that waits for room, in a whole turn; None if there is none."""
        turn, found = GroupTurn(self._turn.after), list[Claimed]()
        while not found and not turn.is_over:
            await self._search_groups(turn, found, 1, ROOM)
        return found[0] if found else None

    async def _add_from_groups(self, found: list[Claimed], limit: int, room: int) -> None:
        try:
            await self._search_groups(self._turn, found, limit, room)
        except ProgressorError:
            # What was claimed before is run. If it is still so, the next claim fails.
            if not found:
                raise
            self._ring("calls")
        if not self._turn.is_over:
            self._ring("calls")

    async def _search_groups(self, turn: GroupTurn, found: list[Claimed], limit: int, room: int) -> None:
        """Claim tasks that wait for room: in the next groups of the turn, and where steps have ended."""
        reaches_end = True
        while reaches_end and not turn.is_over:
            groups, last = await self._storage.groups_with_room(self._name, after=turn.after)
            # Each gives a task: no more of them are locked than there are slots for.
            asked = groups[: limit - len(found)]
            more = await self._claim_in(asked, limit - len(found), room)
            found += more
            room -= sum(held.size for held in more)
            if more and (len(found) >= limit or room <= 0):
                turn.broke_off(max(held.process.group_no or 0 for held in more))
                return
            last = asked[-1] if len(asked) < len(groups) else last
            turn.went(last)
            reaches_end = last is None
        if left := turn.left(limit - len(found)):
            asked = await self._storage.room_in_groups(self._name, left)
            more = await self._claim_in(asked, limit - len(found), room)
            found += more
            if len(found) < limit and sum(held.size for held in more) < room:
                turn.took(left)

    async def _claim_in(self, groups: Sequence[int], limit: int, room: int) -> list[Claimed]:
        if not groups:
            return []
        return await self._storage.search_groups(
            self._name, limit, groups=groups, worker_id=self._worker_id, lease=new_lease(), room=room
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
            self._ring("calls")
        if released == _MOST_RELEASED:
            self._ring("timers")
