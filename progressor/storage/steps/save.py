"""Ends of steps, behind the fence; the most common ones in a statement of fewer parts.

Rule: save_result saves every end of a step. save_lite saves steps on whose processes nothing waits, and
leaves all others to save_result. A repetition never uses save_lite. A variant of either leaves out parts
that none of its steps can need: whatever may stand in the database is looked for by each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from progressor.model import Disposition, ProcessStatus, TaskType
from progressor.storage.feed.appending import saving_with_feed
from progressor.storage.params import (
    changes_columns,
    ending_columns,
    message_columns,
    pause_columns,
    step_columns,
    task_key_columns,
    timeless_columns,
)
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.session_setup import BRIEFLY
from progressor.storage.rows import lite_outcomes_of, outcomes_of
from progressor.storage.statements import Params
from progressor.storage.values import LostLease, Saved, Step, most_cancelled

# Task types behind which most often nothing waits. Calls are left out: behind most of them another call
# waits, or a blocked timer.
_LITE = (TaskType.TIMEOUT, TaskType.INIT)


async def save(
    session: Session,
    again: bool,
    *,
    steps: Sequence[Step],
    now: datetime | None,
    tried: bool,
    hints: Hints | None = None,
) -> list[Saved | LostLease]:
    """Try to save these steps; with `again` or `tried` an earlier try may have been committed.

    The hints leave behind each transaction, whichever steps it saves: who hears one looks.
    """
    if again or tried:
        # The first try may still be under way, on a connection that only we lost. Behind the lock it is
        # either committed or not, and the fence keeps a committed step from being saved twice.
        ends = ending(steps, now)
        keys = {**task_key_columns([step.task for step in steps]), "now": now}
        waiting = BRIEFLY if tried else {}
        results = await session.transact({**waiting, "lock": keys, "saved": keys, **ends}, hints)
        return outcomes_of(steps, results)
    saving = lite_ending(steps, now)
    if saving is None:
        return outcomes_of(steps, await session.transact(_behind_the_lock(ending(steps, now)), hints))
    results = await session.transact(_behind_the_lock(saving), hints)
    saved = lite_outcomes_of(steps, *(results[verb] for verb in saving))
    # On the processes of these something waits, or their leases are lost.
    others = [step for step, outcome in zip(steps, saved, strict=True) if outcome is None]
    if others:
        results = await session.transact(_behind_the_lock(ending(others, now)), hints)
    left = iter(outcomes_of(others, results) if others else ())
    return [next(left) if outcome is None else outcome for outcome in saved]


def _is_lite(step: Step) -> bool:
    return (
        step.ends_alone
        and step.decision.status is not None
        and step.task.task_type in _LITE
        # The only timer is the task itself.
        and len(step.process.timers) <= 1
    )


def lite_ending(steps: Sequence[Step], now: datetime | None) -> dict[str, Params] | None:
    """Return the statement that saves these most common steps; None if one of them is another."""
    if not all(map(_is_lite, steps)):
        return None
    return _saving("save_lite", steps, now)


def _saving(verb: str, steps: Sequence[Step], now: datetime | None) -> dict[str, Params]:
    variant = _variant(verb, steps)
    columns = timeless_columns(steps) if variant == "save_result_timeless" else step_columns(steps)
    if variant.endswith("_pausing"):
        columns |= pause_columns(steps)
    return saving_with_feed(variant, steps, {**columns, "now": now})


def _variant(verb: str, steps: Sequence[Step]) -> str:
    """Return the variant of a statement that has all parts that these steps need."""
    if any(step.pause is not None for step in steps):
        return f"{verb}_pausing"
    return "save_result_timeless" if verb == "save_result" and all(map(_leaves_timers, steps)) else verb


def _leaves_timers(step: Step) -> bool:
    """Return whether a step goes on with the timers as they are, or as `change_timers` left them."""
    return step.decision.disposition is Disposition.RESUME and step.decision.timer is None


def _behind_the_lock(ends: dict[str, Params]) -> dict[str, Params]:
    # The last of these has all steps.
    return {"lock": next(reversed(ends.values())), **ends}


def ending(steps: Sequence[Step], now: datetime | None) -> dict[str, Params]:
    """Return the statements that save these steps.

    First those for messages, inits that run anew, breaks, removals, and changes of several timers.
    """
    saving: dict[str, Params] = {}
    if sending := [step for step in steps if step.decision.messages]:
        saving["send_messages"] = {**message_columns(sending), "now": now}
    if begun := [step.task for step in steps if step.decision.status is ProcessStatus.INIT]:
        saving["restart_init"] = {**task_key_columns(begun), "now": now}
    for verb, disposition in (("cancel_waiting", Disposition.BREAK), ("remove", Disposition.REMOVE)):
        if ended := [step for step in steps if step.decision.disposition is disposition]:
            saving[verb] = {**ending_columns(ended), "now": now, "most": most_cancelled(len(ended))}
    if several := [step for step in steps if step.decision.changes]:
        saving["change_timers"] = {**changes_columns(several), "now": now}
    return {**saving, **_saving("save_result", steps, now)}
