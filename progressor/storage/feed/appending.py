"""The part of steps that the feed of their namespace gets: in their transaction, or not at all.

Rule: a step is appended if it changed its process: state, metadata, events or status. The statement that
saves the steps appends them, behind the same fence: what it does not save, it does not append.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from progressor.model import Disposition, ProcessStatus, TaskType
from progressor.storage.postgres.arrays import bigints, texts
from progressor.storage.statements import Params, Transaction, feeding
from progressor.storage.values import Step


class FeedLetter(StrEnum):
    """The letters by which a row of the feed says what happened to its processes."""

    CREATED = "c"
    STEP = "s"
    BROKEN = "b"
    REPAIRED = "p"
    REMOVED = "r"


def letter_of(step: Step) -> FeedLetter | None:
    """Return what a step is in the feed that its namespace has; None if that gets nothing."""
    task, decision = step.task, step.decision
    if decision.disposition in (Disposition.RETRY, Disposition.HOLD):
        return None
    if decision.disposition is Disposition.REMOVE:
        # What was refused at its start was never there.
        refused = task.task_type is TaskType.INIT and decision.reply.rejection is not None
        return None if refused else FeedLetter.REMOVED
    if decision.status is None:
        return None
    if decision.status is ProcessStatus.ERROR:
        return FeedLetter.BROKEN
    if task.task_type is TaskType.INIT:
        return FeedLetter.CREATED
    if task.task_type is TaskType.REPAIR:
        return FeedLetter.REPAIRED
    changes = decision.events or decision.aux_state is not None or decision.metadata is not None
    return FeedLetter.STEP if changes else None


def saving_with_feed(verb: str, steps: Sequence[Step], params: Params) -> dict[str, Params]:
    """Return the statement that saves these steps: the variant that feeds, if any is for a feed."""
    letters = [letter_of(step) if step.decision.feeds else None for step in steps]
    if not any(letters):
        return {verb: params}
    processes = [step.process for step in steps]
    columns = {
        "feed_kind": texts(letters),
        "feed_namespace": texts([process.namespace for process in processes]),
        "feed_process_id": texts([process.process_id for process in processes]),
        "feed_event_count": bigints([len(step.decision.events) for step in steps]),
    }
    return {feeding(verb): {**params, **columns}}


def feeding_processes(
    letter: FeedLetter, process_nos: Sequence[int], *, now: datetime | None
) -> Transaction:
    """Return the statement that appends these processes, which this transaction changed without a step."""
    return {"feed_processes": {"kind": letter, "process_no": bigints(process_nos), "now": now}}
