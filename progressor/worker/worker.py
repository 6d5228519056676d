"""The step: load, perform, decide, save, reply; and on with the continuation.

Rule: no reply leaves this module before the commit of its step. A worker that lost its lease changes
nothing: its result is dropped, logged and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from progressor import metrics
from progressor.config import EngineOptions
from progressor.errors import InvalidRequest, SchemaMismatch, StorageUnavailable, Undecryptable
from progressor.errors.of_handlers import StepNotSaved, TransactionFailed
from progressor.handlers.codec import Wire
from progressor.handlers.dry_run import described
from progressor.handlers.handler import Handler, InvalidCall, fields_of, handler_of
from progressor.handlers.limits import bounded
from progressor.handlers.namespace import Namespace
from progressor.handlers.perform import failure, perform, refusal
from progressor.handlers.running.deadlines import Deadlines
from progressor.handlers.running.waits import Lending, RunningStep
from progressor.handlers.step_connection import lending
from progressor.inputs import HistoryRange
from progressor.loggers import Logger
from progressor.model import (
    Decision,
    Disposition,
    Failure,
    Outcome,
    Rejection,
    Snapshot,
    Task,
    TaskType,
)
from progressor.node.replies import Replies
from progressor.outages import Outage, OutageLines, cause_of, in_one_line
from progressor.spans.in_use import spans
from progressor.storage import (
    Batcher,
    Claimed,
    Finished,
    LostLease,
    Saved,
    Step,
    StepTransaction,
    TaskOutcome,
    TaskRef,
    Unreadable,
)
from progressor.transitions import after, decide
from progressor.worker.addresser import Addresser
from progressor.worker.connection_slots import StepConnections
from progressor.worker.foreign_functions import ForeignFunctions
from progressor.worker.result_budget import ResultBudget
from progressor.worker.slot import Slot

if TYPE_CHECKING:
    from progressor.storage import Reads

log = Logger("progressor.worker")

# Seconds between two tries to read a history.
_PAUSE = 1.0
_DEFAULT_OPTIONS = EngineOptions()
_NO_WIRES: Mapping[str, Wire] = {}
_LINES = OutageLines("history not read, going on", "histories still not read", "histories are read again")


def _nothing() -> None:
    """Do nothing: for a worker whose messages others deliver."""


class StepResult(NamedTuple):
    """The task to go on with after a step, and the time until its new timer falls due."""

    following: Claimed | None = None
    due: timedelta | None = None


class Worker:
    """The part of a worker that runs the steps of one namespace, with its handler.

    `wires` are those of the namespaces that are served beside it, for messages to them; `sent` is called
    once a step is committed that sent some.
    """

    def __init__(
        self,
        namespace: Namespace,
        handler: Handler,
        steps: Batcher[Step, Saved | LostLease],
        reads: Callable[[], Awaitable[Reads]],
        replies: Replies,
        *,
        lending: Lending,
        budget: ResultBudget,
        connections: StepConnections,
        foreign: ForeignFunctions,
        groups: Callable[[Task, str], Awaitable[int | None]],
        wires: Mapping[str, Wire] = _NO_WIRES,
        sent: Callable[[], None] = _nothing,
        fed: Callable[[], None] = _nothing,
        options: EngineOptions = _DEFAULT_OPTIONS,
    ) -> None:
        self._namespace = namespace
        self._handler = handler
        self._policy = namespace.options.retry_policy
        self._pause = namespace.options.pause
        self._feeds = namespace.options.feed
        self._has_groups = namespace.has_groups
        self._groups = groups
        self.deadlines = Deadlines(namespace.options.step_timeout.total_seconds())
        self._steps = steps
        self._reads = reads
        self._replies = replies
        self._lending = lending
        self._budget = budget
        self.connections = connections
        """The connections of the handlers that run SQL of their own."""
        self.foreign = foreign
        """The functions that are left to other workers for now."""
        self._addresser = Addresser(namespace.wire, wires)
        self._sent = sent
        self._fed = fed
        self._options = options
        self.performed = self.saved = 0  # Handlers that were run so far, and steps that were saved.
        self._outage = Outage(log, _LINES, namespace=namespace.name)

    async def step(self, held: Claimed, slot: Slot) -> StepResult:
        """Run one task that this worker holds, save its result and reply.

        NoRoom, NoThread or LeftToOthers if it did not begin; StepNotSaved if it must run again. The init of
        a process without its group does not begin: it waits for room there.
        """
        function = self._namespace.find(held.task.task_type, held.task.name)
        if function is None and not self._namespace.serves(held.task):
            await self.foreign.leave(held.task)
        if self._has_groups and held.process.group_no is None and held.task.task_type is TaskType.INIT:
            return await self._enter(held, slot)
        if function is None or function.connection is None:
            return await self.save_and_reply(held, await self.run_handler(held, slot), slot)
        async with self.connections.transaction(
            function, function.connection, seconds=self.deadlines.seconds
        ) as own:
            return await self.save_and_reply(held, await self.run_handler(held, slot, own), slot, own)

    async def _enter(self, held: Claimed, slot: Slot) -> StepResult:
        """Have a process enter its group before its init begins, or refuse the init."""
        task, process = held
        try:
            key = self._namespace.group_of(task)
        except InvalidCall as error:
            return await self.save_and_reply(held, self._decide(process, task, refusal(error)), slot)
        except Undecryptable as error:
            log.exception("arguments cannot be decrypted", extra=fields_of(task))
            return await self.save_and_reply(held, self._decide(process, task, failure(error)), slot)
        if key is None:
            return await self.save_and_reply(held, await self.run_handler(held, slot), slot)
        slot.entered = await self._groups(task, key)
        return StepResult()

    async def run_handler(self, held: Claimed, slot: Slot, own: StepTransaction | None = None) -> Decision:
        """Run the handler of a task, in `own` transaction if it has one; save nothing.

        Return the decision. NoRoom or NoThread if it did not begin, StepNotSaved if its transaction was
        lost.
        """
        if self._budget.is_used_up:
            await self._budget.room()
        task, process = held
        if self._namespace.loads_history:
            try:
                process = await self._with_history(process, self._namespace.history_for(task))
            except InvalidRequest as error:
                about = fields_of(task) | {"error": str(error)}
                log.error("history cannot be read", extra=about)  # noqa: TRY400 - no values in the log
                return self._decide(process, task, failure(error))
        used = spans()
        span = None if used is None else used.step(task, handler_of(task))
        with RunningStep(self._lending, task, span) as running:
            began = time.monotonic()
            self.performed += 1
            if own is None:
                asked = await perform(self._handler, process, task, self.deadlines)
            else:
                asked = await self._perform_in(own, process, running)
            outcome = bounded(self._addresser.addressed(asked, task), self._options)
            if self._namespace.dry_runs and task.is_dry_run:
                outcome = self._described(outcome, asked, process, task)
            metrics.took(metrics.TASK_PROCESSING, began, task.namespace, task.task_type)
        if running.left_behind is not None:
            # Its handler keeps the slot: another slot takes what comes next on the process.
            slot.hung, slot.goes_on = (task, running.left_behind), False
        if own is not None:
            own.settle(outcome)
        decision = self._decide(process, task, outcome)
        if span is not None:
            span.end(outcome, decision)
            decision = decision._replace(trace=running.trace)
        self._budget.take(slot, decision.size)
        return decision

    async def _perform_in(self, own: StepTransaction, process: Snapshot, running: RunningStep) -> Outcome:
        """Run the handler in its transaction, which ends if its thread runs on after its time or a stop."""
        try:
            with lending(own.scope):
                return await perform(self._handler, process, running.task, self.deadlines)
        except TransactionFailed as error:
            raise StepNotSaved(str(error), has_begun=error.has_begun) from None
        finally:
            if running.left_behind is not None:
                await own.leave_to(running.left_behind)

    def _described(self, outcome: Outcome, asked: Outcome, process: Snapshot, task: Task) -> Outcome:
        """Return the outcome of a dry run, as `described`; a Failure if a value of it cannot be read."""
        wire, most = self._namespace.wire, self._options.max_value_bytes
        try:
            return described(outcome, asked, process, task, wire=wire, most=most)
        except Exception as error:
            # A codec is the user's code.
            log.exception("dry run cannot be shown", extra=fields_of(task))
            return failure(error)

    def _decide(self, process: Snapshot, task: Task, outcome: Outcome) -> Decision:
        return decide(process, task, outcome, self._policy, feeds=self._feeds)

    async def save_and_reply(
        self, held: Claimed, decision: Decision, slot: Slot, own: StepTransaction | None = None
    ) -> StepResult:
        """Save the decision, then reply; return an empty StepResult if the lease was lost."""
        save = self._steps.submit if own is None else partial(self._save_in, own)
        try:
            step, saved = await self._save(self.step_of(held, decision, slot), save)
        finally:
            self._budget.give_back(slot)
        if isinstance(saved, LostLease):
            return StepResult()
        # The decision that was saved: a failure, if PostgreSQL refused the first one.
        return self._after_save(step, saved, announces=own is not None)

    def step_of(self, held: Claimed, decision: Decision, slot: Slot) -> Step:
        """Return the end of a step, to be saved."""
        pause = self._pause
        goes_on = slot.goes_on and pause is None
        return Step(held.task, held.process, decision, goes_on, slot.unsaved_bytes, pause)

    def _after_save(self, step: Step, saved: Saved, *, announces: bool) -> StepResult:
        task, decision = step.task, step.decision
        self._note(task, decision)
        self._reply(step, saved, announces=announces)
        if decision.messages:
            self._sent()
        if decision.feeds:
            self._fed()
        due = None if saved.due is None else saved.due - saved.now
        if saved.continuation is None:
            return StepResult(None, due)
        left = after(step.process, task, decision, now=saved.now, timers=saved.timers)
        return StepResult(Claimed(saved.continuation, left), due)

    def saved_with_claim(
        self, step: Step, saved: Saved | LostLease, *, since: float, announces: bool = False
    ) -> StepResult:
        """Reply for a step that was committed with its claim; it was decided at `since`.

        `announces` unless hints left behind its transaction. Return an empty StepResult if the lease was
        lost.
        """
        task = step.task
        if isinstance(saved, LostLease):
            self._drop(task, saved)
            return StepResult()
        metrics.took(metrics.TASK_COMPLETION, since, task.namespace, step.decision.disposition)
        metrics.child(metrics.FUSED, task.namespace, task.task_type).inc()
        return self._after_save(step, saved, announces=announces)

    def saved_at_once(self, finished: Finished, *, since: float) -> timedelta | None:
        """Note a step that was committed with its request, whose caller has the answer with it.

        Return the time until its new timer is due.
        """
        task, decision = finished.step.task, finished.step.decision
        metrics.took(metrics.TASK_COMPLETION, since, task.namespace, decision.disposition)
        metrics.child(metrics.FUSED, task.namespace, task.task_type).inc()
        self._note(task, decision)
        if decision.feeds:
            self._fed()
        return None if finished.due is None else finished.due - finished.now

    async def _with_history(self, process: Snapshot, wanted: HistoryRange | None) -> Snapshot:
        while wanted is not None:
            try:
                events = await (await self._reads()).events(
                    process.life, wanted, last=process.last_event_id
                )
            except (StorageUnavailable, SchemaMismatch) as error:
                # The task is in our hands: letting it go would leave it running with nobody to run it.
                self._outage.failed(cause_of(error))
                await asyncio.sleep(_PAUSE)
            else:
                self._outage.worked()
                return process._replace(history=events)
        return process

    async def _save_in(self, own: StepTransaction, step: Step) -> Saved | LostLease:
        """Save a step that succeeded with the rows of its handler; any other one without them.

        So is one that succeeded although no handler was called: a timer's time that was passed over.
        """
        if step.decision.succeeded and own.can_be_saved:
            return await own.save(step)
        # First, so that the caller who gets the answer meets no lock of the handler.
        await own.roll_back()
        return await self._steps.submit(step)

    async def _save(
        self, step: Step, save: Callable[[Step], Awaitable[Saved | LostLease]]
    ) -> tuple[Step, Saved | LostLease]:
        """Save a step, or its failure if PostgreSQL refuses the result.

        Return the step saved and the outcome.
        """
        began = time.monotonic()
        try:
            saved = await save(step)
        except Unreadable:
            # The step is saved; its continuation, which cannot be read, is left to a zombie collector.
            raise
        except InvalidRequest as error:
            # PostgreSQL refuses this result (a value too large, say): the step has failed.
            step = self._unsaveable(step, error)
            saved = await self._steps.submit(step)
        namespace, kind = step.task.namespace, step.decision.disposition
        metrics.took(metrics.TASK_COMPLETION, began, namespace, kind)
        if kind is Disposition.REMOVE:
            metrics.took(metrics.PROCESS_REMOVING, began, namespace)
        if isinstance(saved, LostLease):
            self._drop(step.task, saved)
        return step, saved

    def _drop(self, task: Task, lost: LostLease) -> None:
        """Log and count a result that was not saved."""
        if lost.removed:
            metrics.REMOVED_STEPS.labels(task.namespace).inc()
            log.info("process removed while its step ran, result dropped", extra=fields_of(task))
        else:
            metrics.LOST_LEASES.labels(task.namespace).inc()
            log.warning("lease lost, result dropped", extra=fields_of(task))

    def _unsaveable(self, step: Step, error: InvalidRequest) -> Step:
        log.error("result refused by storage", extra=fields_of(step.task))
        # It would refuse the values of a handler again. A removal has none.
        retryable = step.task.task_type is TaskType.REMOVE
        failure = Failure(f"the result could not be saved: {error}", retryable=retryable)
        decision = self._decide(step.process, step.task, failure)
        return step._replace(decision=decision)

    def _note(self, task: Task, decision: Decision) -> None:
        self.saved += 1
        match decision.disposition:
            case Disposition.RETRY:
                metrics.RETRIES.labels(task.namespace).inc()
            case Disposition.BREAK:
                metrics.BROKEN.labels(task.namespace).inc()
                log.warning("process broke", extra=fields_of(task) | {"error": self._shown(decision)})
            case _ if isinstance(decision.reply.rejection, Rejection):
                metrics.REJECTED.labels(task.namespace).inc()
                if task.task_type is TaskType.NOTIFY:
                    # Nobody waits for its answer: but for this line only its trace would tell.
                    reason = self._hidden(decision.reply.rejection.reason)
                    log.warning(
                        "notice refused", extra=fields_of(task) | {"call": task.name, "reason": reason}
                    )

    def _reply(self, step: Step, saved: Saved, *, announces: bool) -> None:
        if not step.task.task_type.is_timer:
            ref = TaskRef.of(step.task, step.process)
            self._replies.resolve(ref, TaskOutcome.of(step.decision.reply))
            if announces:
                self._replies.announce(ref)
        for ref in saved.cancelled:
            self._replies.look(ref)

    def _shown(self, decision: Decision) -> str:
        """Return why a process broke, for the log.

        Only the error's type if a codec hides what is stored.
        """
        error = decision.reply.error or "unknown error"
        return error.partition(":")[0] if self._namespace.wire.is_coded else in_one_line(error)

    def _hidden(self, reason: str) -> str:
        """Return a text of the handler for the log; nothing of it if a codec hides what is stored."""
        return "(hidden by the codec)" if self._namespace.wire.is_coded else in_one_line(reason)
