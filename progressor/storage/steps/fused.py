"""Requests that are accepted, run and saved in one transaction: one commit instead of two.

Rule: a handler begins only behind the lock, when its request is known to be no duplicate and need not wait;
its result is committed with the request, or neither is. A handler that is not done after one turn of the
event loop goes on, and its request is committed as running. After an error the requests are prepared, in a
transaction without handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from progressor.model import Decision, Disposition, Task
from progressor.storage.feed.appending import saving_with_feed
from progressor.storage.params import (
    Columns,
    request_columns,
    result_columns,
    step_columns,
    task_key_columns,
)
from progressor.storage.postgres.arrays import timestamps
from progressor.storage.postgres.pipeline import Session
from progressor.storage.rows import call_of, init_of
from progressor.storage.statements import Params, Row, feeding, lock_by_name
from progressor.storage.values import Claimed, Continue, Finished, Request, Step, TaskOutcome, TaskRef
from progressor.timers import SetTimer

Fused = Finished | Continue | None
"""The outcome of a request; None if nothing was done, and it is to be prepared."""

# The shorter ones where no step of a batch touches a timer, or none that touches one has others.
_SAVES = ("fused_save_timeless", "fused_save_one_timer", "fused_save")
_SAVING = frozenset((*_SAVES, *map(feeding, _SAVES)))
# Bytes of results in one message; a step beyond it is committed as running, and saved by itself.
_MOST_BYTES = 32 << 20


class Look(NamedTuple):
    """The first statement of a flight: its rows are the requests that may run."""

    verb: str
    held: Callable[[Request, Row], Continue]
    locks: bool = True
    behind: tuple[str, ...] = ()


CALLS = Look("fused_look", call_of)
INITS = Look("fused_make", init_of, locks=False, behind=("one_life",))


class FusedFlight:
    """An open transaction that accepts requests, at most one of each process, and saves their steps.

    `held` are the tasks of those that may run here; nobody else sees them before `commit`.
    """

    def __init__(
        self, session: Session, look: Look, requests: Sequence[Request], now: datetime | None
    ) -> None:
        self._session = session
        self._look = look
        self._requests = requests
        self._params: Params = {**request_columns(requests), "now": now}
        # By place among the requests.
        self._held: dict[int, Continue] = {}

    @property
    def held(self) -> list[Claimed]:
        """The accepted tasks, with their processes."""
        return [Claimed(*each) for each in self._held.values()]

    @property
    def has_saved(self) -> bool:
        return bool(self._held)

    async def begin(self) -> None:
        """Lock the processes, and look which of the requests may run."""
        look, requests = self._look, self._requests
        locks = (lock_by_name(len(requests)),) if look.locks else ()
        found = await self._session.begin(dict.fromkeys((*locks, look.verb), self._params))
        for row in found[look.verb]:
            place = row["ord"] - 1
            self._held[place] = look.held(requests[place], row)

    async def commit(self, decisions: Sequence[Decision | None]) -> list[Fused]:
        """Save the decisions on `held`, None for one that goes on; return the outcome of each request."""
        finished, running = _parted(self._held, decisions)
        saving = _saving(self._requests, self._params, finished, running)
        results = await self._session.commit({**saving, **dict.fromkeys(self._look.behind, self._params)})
        outcomes: list[Fused] = [None] * len(self._requests)
        for place, each in running.items():
            outcomes[place] = each
        saved = next((results[verb] for verb in saving if verb in _SAVING), ())
        rows = sorted(saved, key=itemgetter("ord"))
        for (place, step), row in zip(finished.items(), rows, strict=True):
            task, answer = TaskRef.of(step.task, step.process), TaskOutcome.of(step.decision.reply)
            outcomes[place] = Finished(step, row["now"], row.get("due"), task, answer)
        return outcomes


def _saving(
    requests: Sequence[Request],
    params: Params,
    finished: Mapping[int, Step],
    running: Mapping[int, Continue],
) -> dict[str, Params]:
    """Return the statements that write the steps, by places of requests.

    `params` are those of all requests.
    """
    saving: dict[str, Params] = {}
    if finished:
        steps = list(finished.values())
        touching = [step for step in steps if step.decision.disposition is not Disposition.RESUME]
        touched = bool(touching)
        its = {
            **_of(finished, requests, params),
            **_began([step.task for step in steps]),
            **(step_columns(steps) if touched else result_columns(steps)),
        }
        saving |= saving_with_feed(_SAVES[touched + any(map(_has_others, touching))], steps, its)
    if running:
        tasks = [each.task for each in running.values()]
        saving["fused_run"] = {
            **_of(running, requests, params),
            **_began(tasks),
            **task_key_columns(tasks),
        }
    return saving


def _of(places: Collection[int], requests: Sequence[Request], params: Params) -> Params:
    """Return the parameters of the requests at these places; those of all, if these are all."""
    if len(places) == len(requests):
        return params
    return {**params, **request_columns([requests[place] for place in places])}


def _parted(
    held: Mapping[int, Continue], decisions: Sequence[Decision | None]
) -> tuple[dict[int, Step], dict[int, Continue]]:
    """Return the steps that are saved as finished, and those that go on, by place."""
    finished: dict[int, Step] = {}
    running: dict[int, Continue] = {}
    size = 0
    for (place, each), decision in zip(held.items(), decisions, strict=True):
        step = None if decision is None else Step(each.task, each.process, decision)
        if step is None or not _is_plain(step) or (after := size + step.decision.size) > _MOST_BYTES:
            running[place] = each
        else:
            finished[place] = step
            size = after
    return finished, running


def _is_plain(step: Step) -> bool:
    timer, now = step.decision.timer, step.task.running_time
    if not step.ends_alone or now is None:
        return False
    # A step that ends other tasks too, or goes on at once in the same slot, is left to save_result.
    return not isinstance(timer, SetTimer) or _due(timer, now) > now


def _has_others(step: Step) -> bool:
    """Return whether the process has timers beside the one that the step changes."""
    timer = step.decision.timer
    return timer is not None and any(each.name != timer.name for each in step.process.timers)


def _due(timer: SetTimer, now: datetime) -> datetime:
    return now + (timer.after or timedelta()) if timer.at is None else timer.at


def _began(tasks: Sequence[Task]) -> Columns:
    return {"began": timestamps([task.running_time for task in tasks])}
