"""Requests that are accepted, run and saved in one transaction: one commit instead of two.

Rule: a handler begins only behind the lock, when it is known that its request is neither a duplicate nor
has to wait; what it did is committed with the request, or neither is. Whose handler is not done by the end
of its first turn is committed as running instead, and goes on. After an error nothing is run here again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from progressor.model import Decision, Disposition, SetTimer, Task
from progressor.storage.arrays import TimestampArray
from progressor.storage.columns import Columns, request_columns, step_columns, task_key_columns
from progressor.storage.items import Claimed, Continue, Finished, Request, Step
from progressor.storage.rows import call_of, init_of
from progressor.storage.session import Session
from progressor.storage.statements import Params, Row, Transaction

Run = Callable[[Sequence[Claimed]], Awaitable[Sequence[Decision | None]]]
"""Runs what was just accepted for one turn of the loop: what becomes of each, None if it goes on."""
Fused = Finished | Continue | None
"""What became of a request; None: nothing, it is to be prepared."""

# What ends more than its own task, or would go on at once, is saved by save_result.
_PLAIN = (Disposition.RESUME, Disposition.REPLACE, Disposition.CANCEL)
# In one message; what is beyond it is saved by itself.
_MOST_BYTES = 32 << 20


class Doubtful(Exception):
    """A try failed: whether it was committed is found out by preparing its requests."""


async def fused_calls(
    session: Session, again: bool, *, requests: Sequence[Request], run: Run, now: datetime | None
) -> list[Fused]:
    """Calls, one of each process at most."""
    if again:
        raise Doubtful
    params = {**request_columns(requests), "now": now}
    try:
        found = await session.begin({"lock_by_name": params, "fused_look": params})
        held = {row["ord"] - 1: call_of(requests[row["ord"] - 1], row) for row in found["fused_look"]}
        return await _carried(session, requests, held, run, {}, now)
    except Exception:
        await session.roll_back()
        raise


async def fused_inits(
    session: Session, again: bool, *, requests: Sequence[Request], run: Run, now: datetime | None
) -> list[Fused]:
    """Starts, one of each process at most."""
    if again:
        raise Doubtful
    params = {**request_columns(requests), "now": now}
    try:
        found = await session.begin({"fused_make": params})
        held = {row["ord"] - 1: init_of(requests[row["ord"] - 1], row) for row in found["fused_make"]}
        return await _carried(session, requests, held, run, {"one_life": params}, now)
    except Exception:
        await session.roll_back()
        raise


async def _carried(
    session: Session,
    requests: Sequence[Request],
    held: Mapping[int, Continue],
    run: Run,
    behind: Transaction,
    now: datetime | None,
) -> list[Fused]:
    """Run what is held, by its place among the requests, and commit it."""
    results: list[Fused] = [None] * len(requests)
    finished: dict[int, Step] = {}
    running: dict[int, Continue] = {}
    size = 0
    decisions = await run([Claimed(*each) for each in held.values()]) if held else ()
    for (place, each), decision in zip(held.items(), decisions, strict=True):
        step = None if decision is None else Step(each.task, each.process, decision)
        if step is None or not _is_plain(step) or size + step.size > _MOST_BYTES:
            running[place] = results[place] = each
        else:
            finished[place] = step
            size += step.size
    saving: dict[str, Params] = {}
    if finished:
        steps = list(finished.values())
        tasks = _task_columns([requests[place] for place in finished], [step.task for step in steps])
        saving["fused_save"] = {**tasks, **step_columns(steps), "now": now}
    if running:
        tasks = _task_columns(
            [requests[place] for place in running], [each.task for each in running.values()]
        )
        saving["fused_run"] = tasks
    saved: list[Row] = (await session.commit({**saving, **behind})).get("fused_save", [])
    for (place, step), row in zip(finished.items(), saved, strict=True):
        results[place] = Finished(step, row["now"], row["due"])
    return results


def _is_plain(step: Step) -> bool:
    timer, now = step.decision.timer, step.task.running_time
    if step.decision.disposition not in _PLAIN or now is None:
        return False
    # A timer that is due would go on in the same slot.
    return timer is None or _due(timer, now) > now


def _due(timer: SetTimer, now: datetime) -> datetime:
    return now + (timer.after or timedelta()) if timer.at is None else timer.at


def _task_columns(requests: Sequence[Request], tasks: Sequence[Task]) -> Columns:
    began = TimestampArray([task.running_time for task in tasks])
    return {**request_columns(requests), **task_key_columns(tasks), "began": began}
