"""Dry runs of a repair handler: it runs, and all that is saved of its step is what it would have done.

Rule: no worker takes a dry run for a repair. Its arguments are stored so that a worker of an older release,
which knows no dry runs, cannot read them and refuses the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json, to_json

from progressor.handlers.codec import Wire, decode_any
from progressor.messages.message import Message
from progressor.model import (
    Event,
    Failure,
    Intent,
    Metadata,
    Outcome,
    Remove,
    Snapshot,
    Success,
    Task,
    TaskType,
)
from progressor.timers import SetTimer, UnsetTimer
from progressor.transitions import was_broken_in_init

# No JSON begins with it.
_GUARD = b"dry_run "
_OF_MESSAGES = ("namespace", "process_id", "name", "args", "kind", "metadata", "idempotency_key")


@dataclass(frozen=True, slots=True)
class DueTimer:
    """A timer as a step leaves it: the time at which it is due, and whether it removes the process."""

    at: datetime
    remove: bool = False


@dataclass(frozen=True, slots=True)
class DryRun:
    """The repair that a dry run shows: the process as it would be then, and what would leave it.

    `answer` is that of the handler. `state` and `metadata` are those after the step, changed or not;
    `events` those that it would append, `timers` all that would be set then, by name, `messages` those that
    it would send. `removed`: the process would be removed. `begins_anew`: its init broke it, so that the
    init runs anew after the repair, and changes what is shown here.
    """

    answer: Any
    state: Any
    metadata: Metadata
    events: tuple[Event, ...]
    timers: Mapping[str, DueTimer]
    messages: tuple[Message, ...]
    removed: bool
    begins_anew: bool = False

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> DryRun:
        """Return the dry run of its document; what a later release adds to it is left out."""
        timers = {
            name: DueTimer(datetime.fromisoformat(each["at"]), each["remove"])
            for name, each in document["timers"].items()
        }
        events = tuple(Event(each["payload"], each["metadata"]) for each in document["events"])
        messages = tuple(
            Message(**{name: each[name] for name in _OF_MESSAGES}) for each in document["messages"]
        )
        known = {each.name: document[each.name] for each in fields(cls) if each.name in document}
        return cls(**known | {"timers": timers, "events": events, "messages": messages})

    @property
    def document(self) -> dict[str, Any]:
        """The document of it, as its task answers and `progressor repair --dry-run --json` prints it."""
        return {
            "answer": self.answer,
            "state": self.state,
            "metadata": self.metadata,
            "events": [{"payload": each.payload, "metadata": each.metadata} for each in self.events],
            "timers": {
                name: {"at": each.at.isoformat(), "remove": each.remove}
                for name, each in self.timers.items()
            },
            "messages": [{name: getattr(each, name) for name in _OF_MESSAGES} for each in self.messages],
            "removed": self.removed,
            "begins_anew": self.begins_anew,
        }


def read_dry_run(plain: bytes) -> DryRun:
    """Return the dry run that its task answered with."""
    return DryRun.of(from_json(plain))


def guarded(args: bytes | None) -> bytes:
    """Return the arguments of a dry run as it is accepted."""
    return _GUARD + (args or b"null")


def unguarded(plain: bytes | None) -> bytes | None:
    """Return the arguments of a dry run as JSON."""
    return None if plain is None else plain.removeprefix(_GUARD)


def no_dry_runs(namespace: str) -> str:
    """Return the error of a dry run in a namespace that takes none."""
    return (
        f"the repair handler of namespace {namespace} takes no dry runs: its author says that it does "
        "nothing outside then, with @namespace.repair(dry_run=True)"
    )


def described(
    outcome: Outcome, asked: Outcome, process: Snapshot, task: Task, *, wire: Wire, most: int
) -> Outcome:
    """Return the outcome of a dry run: it changes nothing, and answers what the repair would change.

    `asked` is what the handler asked for, `outcome` what would be saved of it, or the failure of that. An
    answer of more than `most` bytes is a Failure, which says that the repair itself is none.
    """
    if not isinstance(outcome, Success) or not isinstance(asked, Success):
        return outcome
    data = to_json(_dry_run_of(asked.intent, process, task, wire).document, bytes_mode="base64")
    if len(data) > most:
        return Failure(
            f"ResultTooLarge: what this dry run shows has {len(data):,} bytes, and may have {most:,} "
            "(max_value_bytes); the repair itself is within its limits",
            error_types=("ResultTooLarge",),
            retryable=False,
        )
    return Success(Intent(response=wire.seal(data, "response", task)))


def _dry_run_of(intent: Intent, process: Snapshot, task: Task, wire: Wire) -> DryRun:
    saved = process.aux_state if intent.aux_state is None else intent.aux_state
    return DryRun(
        answer=wire.decode_any(intent.response, "response", task),
        state=wire.decode_any(saved, "state", process),
        metadata=process.metadata if intent.metadata is None else intent.metadata,
        events=tuple(
            Event(wire.decode_any(each.payload, "event", process), each.metadata) for each in intent.events
        ),
        timers=timers_after(intent, process, task),
        messages=tuple(replace(each, args=decode_any(each.args)) for each in intent.messages),
        removed=isinstance(intent.action, Remove),
        begins_anew=was_broken_in_init(process) and not isinstance(intent.action, Remove),
    )


def timers_after(intent: Intent, process: Snapshot, task: Task) -> dict[str, DueTimer]:
    """Return the timers of a process after a step, by name; none of one that it removes."""
    if isinstance(intent.action, Remove):
        return {}
    now = task.running_time or process.created_at
    left = {each.name: DueTimer(each.due, each.task_type is TaskType.REMOVE) for each in process.timers}
    if task.task_type.is_timer:
        left.pop(task.name or "", None)
    for change in intent.changes:
        match change:
            case SetTimer(name=name):
                timer = change.armed(now, task.namespace, task.process_id, name)
                due = now + (timer.after or timedelta(0)) if timer.at is None else timer.at
                left[name] = DueTimer(due, timer.remove)
            case UnsetTimer(name=name):
                left.pop(name, None)
    return left
