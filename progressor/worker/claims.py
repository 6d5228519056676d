"""The claims of a pool: tasks that wait, as many as it has slots for.

Rule: a claim of timers first releases what was held until a time, and has due timers of groups wait for
room. In a namespace without limits, where only another version of its code can have held something, that is
done once in a while, and then until nothing is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from progressor import metrics
from progressor.handlers.namespace import Namespace
from progressor.model import new_lease
from progressor.storage import ROOM, Claimed, Kind, Storage, TaskRef
from progressor.worker.foreign_functions import ForeignFunctions

# Tasks that one look releases.
_MOST_RELEASED = 1000


class Claims:
    """The claims of the pool of one namespace; `ring` has it look for work of a kind."""

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
        # The group behind which the next claim looks for room: groups take turns.
        self._after = 0

    def look(self) -> None:
        """Have the next claims look for what is held, whether the namespace has limits or not."""
        self._looks = True

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
            found += await self._search_groups(limit - len(found), room)
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
            found = await self._search_groups(1, ROOM) if self.in_groups else []
            return found[0] if found else None
        ref = TaskRef(self._name, process_no, task_id)
        return await self._storage.capture_task(ref, worker_id=self._worker_id, lease=new_lease())

    async def _search_groups(self, limit: int, room: int) -> list[Claimed]:
        """Claim tasks that wait in groups with room: one turn around all groups, or until `limit`."""
        found: list[Claimed] = []
        begin, is_second = self._after, False
        while len(found) < limit and room > 0:
            groups, last = await self._storage.groups_with_room(self._name, after=self._after)
            if groups:
                more = await self._storage.search_groups(
                    self._name,
                    limit - len(found),
                    groups=groups,
                    worker_id=self._worker_id,
                    lease=new_lease(),
                    room=room,
                )
                room -= sum(held.size for held in more)
                found += more
            self._after = last or 0
            is_second = is_second or last is None
            if is_second and self._after >= begin:
                break
        return found

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
            self._ring("calls")
        if released == _MOST_RELEASED:
            self._ring("timers")
