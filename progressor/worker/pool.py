"""The slots of a namespace, and the claims that fill them.

Rule: a slot is taken before a task is claimed, and given back when its chain of steps has ended and every
sync handler that it ran has returned: so each slot has a thread, and no step waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from progressor import metrics
from progressor.errors import ProgressorError
from progressor.handlers.handler_profile import Fuse
from progressor.handlers.namespace import Namespace
from progressor.handlers.running.step_task import StepTask
from progressor.loggers import Logger
from progressor.model import Decision
from progressor.outages import Outage, OutageLines, cause_of
from progressor.storage import ROOM, Claimed, Finished, Hints, Kind, LostLease, Request, Step, Storage
from progressor.supervision import Background, end_all, expect, log_failed, report, watched
from progressor.worker.bells import Bells
from progressor.worker.claims import Claims
from progressor.worker.fused_claims import FusedClaims
from progressor.worker.hand_backs import NOT_RUN, hand_back
from progressor.worker.result_budget import ResultBudget
from progressor.worker.slot import Reservation, Slot, Slots, log_given_up
from progressor.worker.started_step import StartedStep, log_again
from progressor.worker.worker import StepResult, Worker

log = Logger("progressor.pool")

# Steps; a longer chain gives its slot back if no slot is free and other tasks may wait.
MAX_CHAIN = 64
_LINES = OutageLines("claim failed, going on", "claims still fail", "claims work again")


class Pool(Slots):
    """The slots of one namespace, for up to `concurrency` chains of steps."""

    _bells_type: type[Bells] = Bells

    def __init__(
        self,
        namespace: Namespace,
        storage: Storage,
        worker: Worker,
        *,
        worker_id: int,
        budget: ResultBudget,
        poll_interval: timedelta,
        fuse: Fuse = "learned",
        hints: Callable[[Sequence[Step]], Hints | None] = lambda _: None,
        size: int | None = None,
    ) -> None:
        super().__init__(size or namespace.options.concurrency)
        self.namespace, self.worker_id = namespace, worker_id
        self._storage = storage
        self._worker = worker
        worker.connections.pool = self
        self._budget = budget
        budget.notify(self.slots_changed)
        self._fuse: Fuse = fuse
        self.bells = self._bells_type(poll_interval)
        # The task with which each chain began: `_give_up` logs its process.
        self._chains: dict[StepTask[object], Claimed] = {}
        self._claims = Claims(namespace, storage, worker.foreign, self.bells, worker_id=worker_id)
        self._fused = FusedClaims(namespace, storage, worker, self, fuse=fuse, hints=hints)
        self._background = Background(namespace=namespace.name)
        self._outage = Outage(log, _LINES, namespace=namespace.name)
        self.drained = asyncio.Event()
        self._on_end = watched("step", self._chain_ended)
        self.is_open = False
        """True from `start` to `stop`: new work is begun."""
        self._has_given_up = False

    @property
    def busy(self) -> int:
        """The number of chains of steps that run."""
        return len(self._chains)

    @property
    def held(self) -> set[int]:
        """The numbers of the processes on which its chains run."""
        return {held.task.process_no for held in self._chains.values()}

    @property
    def is_idle(self) -> bool:
        """Return whether all slots are free and no task is known to wait."""
        return self.free - self.lent == self.size and not self.bells.rung

    def start(self) -> None:
        metrics.expect(self.namespace.name)
        expect("step")
        self.show(self.namespace.name)
        self.is_open = True
        self.ring("calls")
        self.ring("timers")
        self._background.keep("claims", self._claim_forever)

    def ring(self, kind: Kind) -> None:
        """Have the claims look for work of this kind, in all groups."""
        if kind == "calls":
            self._claims.look_around()
        self.bells.ring(kind)

    def reserve(self) -> bool:
        """Take a slot for a request made in this OS process; return False if there is none, or a rate."""
        # While tasks are known to wait, an eighth of the slots is kept for them: requests made in this OS
        # process must not starve the timers.
        kept = max(1, self.size // 8) if self.bells.rung else 0
        if self.free <= kept or not self.may_claim or self.namespace.rates.all is not None:
            return False
        self.free -= 1
        return True

    def slots_changed(self) -> None:
        if self.bells.rung:
            self.bells.rouse()
        if self.is_unused:
            self.drained.set()

    def fusable_seconds(self, request: Request) -> float | None:
        """Return the seconds its handler is expected to compute; None: it must not run behind a lock."""
        profile = self.namespace.profile_of(request.task_type, request.name)
        return None if profile is None else profile.fusable_seconds(self._fuse)

    def begin_step(self, held: Claimed) -> StartedStep:
        """Begin a step in a slot that was reserved, before its task is committed."""
        return StartedStep(held, slot := Slot(), StepTask(self._worker.run_handler(held, slot)))

    def go_on(self, begun: StartedStep) -> None:
        """Continue a begun step whose task is committed as running, and the chain after it."""
        if self._has_given_up:
            begun.deciding.stop()
        work = self._run_chain(begun.held, begun.slot, begun.deciding)
        chain = self._begin_chain(work, begun.held, begun.slot)
        # A chain that is cancelled before it begins never awaits the step, which then must be stopped.
        chain.add_done_callback(watched("step", lambda _: begun.deciding.stop()))

    def give_up(self, begun: StartedStep) -> None:
        """Give up a begun step whose task is not committed; its slot is free when its handler has ended."""
        if begun.deciding.done():
            self._budget.give_back(begun.slot)
            self.release()
        else:
            self._begin_chain(begun.given_up(), begun.held, begun.slot)

    def restart(self, held: Claimed, begun: StartedStep) -> None:
        """Run `held`, which is committed, in place of `begun`, once the handler of that has ended."""
        slot = Slot()
        self._begin_chain(self._run_anew(held, slot, begun), held, slot)

    async def _run_anew(self, held: Claimed, slot: Slot, begun: StartedStep) -> None:
        await begun.given_up()
        self._budget.give_back(begun.slot)
        await self._run_chain(held, slot)

    def end_fused(self, begun: StartedStep, finished: Finished, *, since: float) -> None:
        """Free the slot of a step that was committed with its request; it was decided at `since`."""
        try:
            due = self._worker.saved_at_once(finished, since=since)
            self.bells.expect(due)
            if any(timer.due <= finished.now for timer in finished.step.process.timers):
                # A fused request blocks no timer, so nothing else rings for one that is due by now.
                self.bells.rung.add("timers")
        finally:
            self._budget.give_back(begun.slot)
            self.release()

    def go_on_after(self, begun: StartedStep, result: StepResult) -> bool:
        """Go on after a step that was saved with its claim; return whether its slot is still used."""
        self._budget.give_back(begun.slot)
        self.bells.expect(result.due)
        if result.following is not None:
            self.run(result.following)
        return result.following is not None

    def look_up(self, begun: StartedStep, step: Step, later: Claimed | None, *, since: float) -> None:
        """Find out whether a step was saved with its claim, whose answer was lost, and go on after it.

        `later` is a task of its process that was claimed since. It runs behind the look-up, which would
        take what follows on it for what followed on the step.
        """
        self._begin_chain(self._looked_up(begun, step, later, since), begun.held, begun.slot)

    async def _looked_up(self, begun: StartedStep, step: Step, later: Claimed | None, since: float) -> None:
        following: Claimed | None = None
        try:
            saved = await self._storage.saved_before(step)
            if isinstance(saved, LostLease) and not saved.removed:
                # Nothing was committed: whoever claims the task runs it.
                log_again(step.task)
            else:
                following, due = self._worker.saved_with_claim(step, saved, since=since, announces=True)
                self.bells.expect(due)
        except Exception as error:
            if later is None:
                raise
            # What cannot be read of the step must not keep the later task from running.
            log_failed("step", error, namespace=self.namespace.name, process_id=step.task.process_id)
        finally:
            self._budget.give_back(begun.slot)
        await self._run_chain(following or later, begun.slot)

    def run(self, held: Claimed) -> None:
        """Begin a chain of steps in a slot that was reserved."""
        self._begin_chain(self._run_chain(held, slot := Slot()), held, slot)

    @property
    def may_claim(self) -> bool:
        """Return whether the pool may take a task: it is open, with a free slot and room for results."""
        return self.free > 0 and self.is_open and not self._budget.is_used_up

    def _begin_chain(
        self, work: Coroutine[Any, Any, object], held: Claimed, slot: Slot
    ) -> StepTask[object]:
        # A callback, not a `finally` in the coroutine, which one cancelled before it begins never reaches.
        chain = StepTask(work)
        self._chains[chain] = held
        chain.add_done_callback(partial(self._on_end, slot))
        return chain

    async def run_next(self, process_no: int) -> bool:
        """Run the next task of a process in a slot that is lent for it; return False if none was run.

        While there are free slots and room, nothing is lent: the claims take the task. A pool that stops
        claims no more, so it lends a slot: what runs must be able to finish.
        """
        if self.free > 0 and self._room() > 0 and self.is_open:
            return False
        held: Claimed | None = None
        self.take()
        with self.claims.entry():
            try:
                held = await self._claims.next_of(process_no)
            except ProgressorError as error:
                self._outage.failed(cause_of(error))
            finally:
                if held is None:
                    self.release()
            if held is None:
                return False
            # One step, not a chain: the slot is lent for the step that is waited for, and for no other.
            slot = Slot(goes_on=False)
            step = self._begin_chain(self._run_step(held, slot), held, slot)
        try:
            await asyncio.wait({step})
        except asyncio.CancelledError:
            step.stop()
            raise
        return True

    def _chain_ended(self, slot: Slot, chain: StepTask[object]) -> None:
        held = self._chains.pop(chain)
        self._budget.give_back(slot)
        if self._claims.in_groups:
            # Its group has room now.
            self._claims.leave(slot.entered or held.process.group_no)
            self.bells.rung.add("calls")
        if slot.hung is None:
            self.release()
        else:
            self.keep_for_hung(*slot.hung)
        # After a defect its task stays in `running`: a collector takes it after step_timeout and grace.
        report("step", chain, namespace=self.namespace.name, process_id=held.task.process_id)

    async def _run_chain(
        self, held: Claimed | None, slot: Slot, deciding: StepTask[Decision] | None = None
    ) -> None:
        steps = 0
        while held is not None:
            if deciding is None and not self.is_open:
                await self._storage.hand_back([held.task])
                return
            steps += 1
            others_wait = self.free <= 0 and bool(self.bells.rung)
            # In a group others wait for the room of this chain, here or elsewhere.
            others_wait = others_wait or self._claims.in_groups
            # By a rate each step is claimed.
            ends = self.namespace.rates.any or (others_wait and steps >= MAX_CHAIN)
            slot.goes_on = self.is_open and not ends
            held = await self._run_step(held, slot, deciding)
            deciding = None

    async def _run_step(
        self, held: Claimed, slot: Slot, deciding: StepTask[Decision] | None = None
    ) -> Claimed | None:
        try:
            if deciding is None:
                following, due = await self._worker.step(held, slot)
            else:
                following, due = await self._worker.save_and_reply(held, await deciding, slot)
        except NOT_RUN as error:
            pause = await hand_back(held.task, error, self._storage, lent=not slot.goes_on)
            if pause is not None:
                self._claims.look()
                self.bells.expect(pause)
            self.bells.rung |= {"calls", "timers"}
            return None
        self.bells.expect(due)
        if not slot.goes_on:
            # The chain ends here: any free slot may take what waits on its process.
            self.ring("calls")
        return following

    async def _claim_forever(self) -> None:
        while self.is_open:
            if await self.bells.next():
                self._claims.look()
            if self.bells.rung and self.may_claim:
                await self._claim_once()

    async def _claim_once(self) -> None:
        # Calls before timers. A claim takes seven eighths of the slots, or half of the last; others are
        # for requests made in this OS process. It takes so many because each claim is a transaction.
        for kind in self._claims.kinds():
            room = self._room() if kind in self.bells.rung and self.free > 0 else 0
            if room <= 0 or not self.is_open or self.bells.rests:
                continue
            slots = max((self.free + 1) // 2, self.free - self.size // 8)
            self.bells.rung.discard(kind)
            self.free -= slots
            reserved = Reservation(slots)
            try:
                with self.claims.entry():
                    more = await self._claim(kind, reserved, room)
                if more:
                    self.bells.ring(kind)
            except ProgressorError as error:
                self._outage.failed(cause_of(error))
            else:
                self._outage.worked()
            finally:
                self.release(reserved.left)

    async def _claim(self, kind: Kind, slots: Reservation, room: int) -> bool:
        """Claim tasks and run them; return whether more may wait."""
        is_plain = await self._claims.release_due(kind)
        if is_plain and self._fused.pays[kind]:
            return await self._fused.claim(kind, slots, room)
        found = await self._claims.search(kind, slots.left, room)
        more = len(found) == slots.left or sum(held.size for held in found) >= room
        for held in found:
            slots.take()
            self.run(held)
        self._fused.note(kind, found)
        return more

    def _room(self) -> int:
        """Return the bytes of values that may be claimed now, beside those with which the chains began."""
        return ROOM - sum(held.size for held in self._chains.values())

    async def stop(self, grace: timedelta) -> bool:
        """Stop claiming and let what runs finish; return True if all of it did within `grace`."""
        self.is_open = False
        self._worker.connections.close()
        self.bells.rouse()
        try:
            async with asyncio.timeout(grace.total_seconds()):
                # First the claims: the tasks they bring are handed back.
                await self._background.ended()
                # Then what runs, and the requests for which a slot is reserved: they may still be accepted.
                # Hung handlers are not waited for: their steps are over.
                await self._slots_unused()
        except TimeoutError:
            await self._give_up()
            return False
        finally:
            self.hide(self.namespace.name)
        return True

    async def _slots_unused(self) -> None:
        # A refused flight gives its slots back in the turn in which its requests begin alone: these take
        # theirs in the next.
        await asyncio.sleep(0)
        while not self.is_unused:
            self.drained.clear()
            await self.drained.wait()
            await asyncio.sleep(0)

    async def _give_up(self) -> None:
        self._has_given_up = True
        await self._background.stop()
        log_given_up(self.namespace.name, [held.task.process_id for held in self._chains.values()])
        for chain in self._chains:
            chain.stop()
        # `_chain_ended` logs how each of them ended.
        await end_all(self._chains)
