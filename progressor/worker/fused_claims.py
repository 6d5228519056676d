"""Claims whose steps run, and are saved, in the transaction that claims them.

Rule: only steps that end well, in one turn of the event loop, are saved there; all others go on as claimed.
If the transaction fails, or its answer is lost, the claim is repeated under the same lease: that finds what
was committed, or claims anew. A decision is then used if its process is as it was; whether a step was saved
whose task is not found again is looked up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from progressor import metrics
from progressor.errors import InvalidRequest
from progressor.handlers.handler_profile import Fuse, HandlerProfile
from progressor.handlers.namespace import Namespace
from progressor.handlers.timers import may_be_passed_over
from progressor.inputs import new_lease
from progressor.model import Task
from progressor.storage import (
    KINDS,
    Claimed,
    Doubtful,
    FusedClaim,
    Hints,
    Kind,
    LostLease,
    Saved,
    Step,
    Storage,
)
from progressor.worker.claims import SCANNING
from progressor.worker.slot import Reservation
from progressor.worker.started_step import MOST_TOGETHER, StartedStep, bar_slow, log_again
from progressor.worker.worker import Worker

if TYPE_CHECKING:
    from progressor.worker.pool import Pool

# Tasks; their processes are locked while their handlers run, one after the other.
_MOST = 64
# Bytes of results in one message; a step beyond it is saved by itself.
_MOST_BYTES = 32 << 20


class FusedClaims:
    """The fused claims of one pool; `hints` returns those that leave behind the steps."""

    def __init__(
        self,
        namespace: Namespace,
        storage: Storage,
        worker: Worker,
        pool: Pool,
        *,
        fuse: Fuse,
        hints: Callable[[Sequence[Step]], Hints | None],
    ) -> None:
        self._namespace = namespace
        self._storage = storage
        self._worker = worker
        self._pool = pool
        self._fuse: Fuse = fuse
        # A lost worker is to break the process of what it may have begun: so nothing that is claimed begins
        # unseen.
        self._breaks_lost = namespace.options.on_zombie == "error"
        self._hints = hints
        self.pays = dict.fromkeys(KINDS, fuse == "always")
        """For each kind whether most of what was claimed last could have run so."""

    def note(self, kind: Kind, held: Sequence[Claimed]) -> None:
        """Learn from what was claimed whether the next claim of this kind is to be fused."""
        if held:
            ready = sum(self._fusable_seconds(each.task) is not None for each in held)
            self.pays[kind] = ready * 2 > len(held)

    def _profile_of(self, task: Task) -> HandlerProfile | None:
        return self._namespace.profile_of(task.task_type, task.name)

    def _fusable_seconds(self, task: Task) -> float | None:
        if task.expires_at is not None or may_be_passed_over(task):
            # It has begun only once its claim is committed: were that lost, it might expire, or be passed
            # over, though it ran.
            return None
        profile = self._profile_of(task)
        if profile is None or (self._breaks_lost and not profile.stated):
            return None
        if task.task_type.is_timer and not profile.was_run:
            # One that kills its worker uses up its attempts: after a restart it is seen as running.
            return None
        return profile.fusable_seconds(self._fuse)

    async def claim(self, kind: Kind, slots: Reservation, room: int) -> bool:
        """Claim tasks of a kind and run them; return whether more may wait."""
        limit, lease, is_lost = min(slots.left, _MOST), new_lease(), False
        flight = _ClaimedSteps(self._worker, self._pool, slots)
        try:
            claim, saved = await self._fly(flight, kind, limit, lease)
        except (Doubtful, InvalidRequest):
            # InvalidRequest: PostgreSQL refuses one of the results. Saved alone, it breaks its process.
            is_lost = True
            bar_slow(flight.begun.values(), flight.seconds, self._profile_of)
            held = await self._storage.search(
                kind,
                self._namespace.name,
                limit,
                worker_id=self._pool.worker_id,
                lease=lease,
                room=room,
                tried=True,
            )
            flight.find(held)
        else:
            flight.land(claim.held, saved)
            held = await self._storage.with_values(claim.large, room)
            for each in held:
                flight.run(each)
            held += claim.held
        finally:
            flight.give_up()
        self.note(kind, held)
        # What is found after a loss may be less than was claimed; without room some were handed back.
        return is_lost or len(held) == limit or sum(each.size for each in held) >= room

    async def _fly(
        self, flight: _ClaimedSteps, kind: Kind, limit: int, lease: int
    ) -> tuple[FusedClaim, list[Saved | LostLease | None]]:
        """Carry one transaction; return it with the outcomes of the steps that it saved."""
        name, began = self._namespace.name, time.monotonic()
        claiming = self._storage.fused_claim(name, kind, limit, worker_id=self._pool.worker_id, lease=lease)
        async with claiming as claim:
            metrics.took(SCANNING[kind], began, name)
            await flight.begin(claim.held, self._fusable_seconds)
            steps = list(flight.steps.values())
            return claim, await claim.commit(steps, self._hints(steps))


class _ClaimedSteps:
    """The steps of one claim, by the numbers of their processes.

    `begun` are those that are neither over nor handed to the pool, `steps` those that end in the
    transaction; `seconds` is how long the handlers had the event loop.
    """

    def __init__(self, worker: Worker, pool: Pool, slots: Reservation) -> None:
        self._worker = worker
        self._pool = pool
        self._slots = slots
        self.begun: dict[int, StartedStep] = {}
        self.steps: dict[int, Step] = {}
        self.seconds = self._decided_at = 0.0

    async def begin(self, held: Sequence[Claimed], fusable_seconds: Callable[[Task], float | None]) -> None:
        """Begin what may run behind the locks, and give it one turn of the loop."""
        together, began = 0.0, time.monotonic()
        for each in held:
            seconds = fusable_seconds(each.task)
            if seconds is not None and (not self.begun or together + seconds <= MOST_TOGETHER):
                together += seconds
                self.begun[each.task.process_no] = self._pool.begin_step(each)
        if self.begun:
            # The handlers run here: the tasks that were begun have their turn of the loop.
            await asyncio.sleep(0)
        self._decided_at = time.monotonic()
        self.seconds = self._decided_at - began
        size = 0
        for number, started in self.begun.items():
            decision = started.decision_if_done()
            if decision is None:
                continue
            step = self._worker.step_of(started.held, decision, started.slot)
            size += step.size
            if step.ends_alone and (size <= _MOST_BYTES or not self.steps):
                self.steps[number] = step

    def land(self, held: Sequence[Claimed], saved: Sequence[Saved | LostLease | None]) -> None:
        """Go on after the commit: the slot of a step that is over is free, unless a task follows."""
        for (number, step), outcome in zip(self.steps.items(), saved, strict=True):
            if outcome is None:
                continue
            started = self.begun.pop(number)
            result = self._worker.saved_with_claim(step, outcome, since=self._decided_at)
            if self._pool.go_on_after(started, result):
                self._slots.take()
        for each in held:
            number = each.task.process_no
            if number in self.begun:
                self._slots.take()
                self._pool.go_on(self.begun.pop(number))
            elif number not in self.steps:
                self.run(each)

    def run(self, held: Claimed) -> None:
        """Begin a task that was not begun behind the locks."""
        self._slots.take()
        self._pool.run(held)

    def find(self, held: Sequence[Claimed]) -> None:
        """Go on with what was claimed, after the transaction failed; look up what is not among it."""
        later: dict[int, Claimed] = {}
        for each in held:
            number = each.task.process_no
            started = self.begun.get(number)
            if started is None:
                self.run(each)
                continue
            if number in self.steps and each.task.task_id != started.held.task.task_id:
                later[number] = each
                continue
            del self.begun[number]
            self._slots.take()
            before = started.held
            if (each.task.task_id, each.process) == (before.task.task_id, before.process):
                self._pool.go_on(started._replace(held=each))
            else:
                log_again(each.task)
                self._pool.restart(each, started)
        for number, step in self.steps.items():
            if number in self.begun:
                self._slots.take()
                begun, then = self.begun.pop(number), later.get(number)
                self._pool.look_up(begun, step, then, since=self._decided_at)

    def give_up(self) -> None:
        """Give up the steps that are left: their tasks are not in the hands of this worker."""
        for started in self.begun.values():
            self._slots.take()
            self._pool.give_up(started)
