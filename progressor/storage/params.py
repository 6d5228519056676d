"""The columns of a batch: a list of items as the parameters of a statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from progressor.config import Rate, Rates
from progressor.inputs import MAX_ID_LENGTH
from progressor.messages.message import Message
from progressor.model import Decision, Disposition, Event, Life, Metadata, ProcessStatus, Task, TaskType
from progressor.storage.postgres.arrays import (
    bigints,
    blobs,
    booleans,
    columns_of,
    jsons,
    microseconds,
    texts,
    timestamps,
)
from progressor.storage.values import Import, Request, Step, TaskKey, TaskOutcome
from progressor.timers import SetTimer, TimerChange

Columns = dict[str, Any]

# A number with an exponent because it is large: 1e+16, or 1e16 as older releases of pydantic write it.
_LARGE = re.compile(r"\de\+?\d")
# A text of JSON, or such a number.
_TEXT_OR_LARGE = re.compile(r'"(?:[^"\\]|\\.)*"|-?[\d.]+e\+?\d+')


def json_text(value: Metadata | None) -> str | None:
    """Return a metadata dict as JSON text; None for None."""
    if value is None:
        return None
    if not value:
        return "{}"
    if len(value) == 1 and isinstance(name := value.get("name"), str) and len(name) <= MAX_ID_LENGTH:
        return _named(name)
    text = to_json(value).decode()
    # jsonb forgets the exponent, and 1e+16 would come back as a whole number.
    return _TEXT_OR_LARGE.sub(_with_a_point, text) if _LARGE.search(text) else text


@lru_cache(maxsize=1024)
def _named(name: str) -> str:
    """Return metadata of a name alone, as most events have them, as JSON text."""
    return to_json({"name": name}).decode()


def _with_a_point(token: re.Match[str]) -> str:
    return token[0] if token[0][0] == '"' else f"{float(token[0]):.1f}"


def request_columns(requests: Sequence[Request]) -> Columns:
    """Return the columns of requests, one at least."""
    # One such tuple, each of whose fields has that field of all requests.
    columns: Any = Request._make(zip(*requests, strict=True))
    return {
        "namespace": texts(columns.namespace),
        "process_id": texts(columns.process_id),
        "task_type": texts(columns.task_type),
        "name": texts(columns.name),
        "args": blobs(columns.args),
        "process_metadata": jsons([json_text(metadata or {}) for metadata in columns.process_metadata]),
        "idempotency_key": texts(columns.idempotency_key),
        "request_hash": blobs(columns.request_hash),
        "context": blobs(columns.context),
        "reply_to": bigints(columns.reply_to),
        "worker_id": bigints(columns.worker_id),
        "lease": bigints(columns.lease),
        "expires": bigints([None if each is None else microseconds(each) for each in columns.expires]),
        "priority": bigints(columns.priority),
        "trace": texts(columns.trace),
    }


def hint_columns(hints: Sequence[tuple[str, str]]) -> Columns:
    """Return these hints, each a channel and a text."""
    return {
        "channel": texts([channel for channel, _ in hints]),
        "payload": texts([text for _, text in hints]),
    }


def rate_params(rates: Rates) -> dict[str, Any]:
    """Return the rates that a claim holds; without any it is a statement without rates."""
    if not rates.any:
        return {}
    return {
        **_rate_params("rate", rates.all),
        **_rate_params("group", rates.group),
        "enters": rates.enters,
    }


def _rate_params(name: str, rate: Rate | None) -> dict[str, int | None]:
    if rate is None:
        return {f"{name}_interval": None, f"{name}_burst": None}
    return {f"{name}_interval": microseconds(rate.interval), f"{name}_burst": rate.burst}


def timeless_columns(steps: Sequence[Step]) -> Columns:
    """Return the columns of steps that leave all timers as they are."""
    return {**result_columns(steps), "keeps_slot": booleans([step.keeps_slot for step in steps])}


def step_columns(steps: Sequence[Step]) -> Columns:
    decisions = [step.decision for step in steps]
    return {
        **timeless_columns(steps),
        "disposition": texts([decision.disposition for decision in decisions]),
        # The name of a timer that is tried again goes with its row.
        "timer": texts([_timer_of(step) for step in steps]),
        **_due_columns([decision.timer for decision in decisions]),
        "timer_trace": texts([step.trace for step in steps]),
        "delay": bigints([_delay(decision) for decision in decisions]),
    }


def pause_columns(steps: Sequence[Step]) -> Columns:
    """Return the pauses after steps, for the statements that let processes rest."""
    return {"pause": bigints([None if step.pause is None else microseconds(step.pause) for step in steps])}


def _timer_of(step: Step) -> str | None:
    """Return the name of the timer that a step writes or drops; None if it leaves all as they are."""
    if step.decision.timer is not None:
        return step.decision.timer.name
    return step.task.name or "" if step.decision.disposition is Disposition.RETRY else None


def result_columns(steps: Sequence[Step]) -> Columns:
    """Return all columns of steps but those of their timers."""
    decisions = [step.decision for step in steps]
    answers = [TaskOutcome.of(decision.reply) for decision in decisions]
    return {
        **task_key_columns([step.task for step in steps]),
        "status": texts(
            [step.decision.status if step.pause is None else _resting_status(step) for step in steps]
        ),
        "aux_state": blobs([decision.aux_state for decision in decisions]),
        "process_metadata": jsons([json_text(decision.metadata) for decision in decisions]),
        "last_event_id": bigints(
            [step.process.last_event_id + len(step.decision.events) for step in steps]
        ),
        "response": blobs([answer.response for answer in answers]),
        "error": texts([answer.error for answer in answers]),
        **_event_columns(steps),
    }


def _resting_status(step: Step) -> ProcessStatus | None:
    """Return the new status of a process that rests after a step; None if its row stays as it is."""
    if step.decision.status is None and step.process.status is ProcessStatus.RUNNING:
        # Its row says until when it rests.
        return ProcessStatus.RUNNING
    return step.decision.status


def timer_columns(decisions: Sequence[Decision]) -> Columns:
    """Return the timer that each decision sets or unsets, if it does."""
    return _change_columns([decision.timer for decision in decisions])


def _change_columns(timers: Sequence[TimerChange | None]) -> Columns:
    names = texts([None if timer is None else timer.name for timer in timers])
    return {"timer": names, **_due_columns(timers)}


def _due_columns(timers: Sequence[TimerChange | None]) -> Columns:
    new = [timer if isinstance(timer, SetTimer) else None for timer in timers]
    return {
        "timer_type": texts([None if timer is None else _timer_type(timer) for timer in new]),
        "timer_at": timestamps([None if timer is None else timer.at for timer in new]),
        "timer_args": blobs([None if timer is None else timer.occurrence for timer in new]),
    }


def _timer_type(timer: SetTimer) -> TaskType:
    return TaskType.REMOVE if timer.remove else TaskType.TIMEOUT


def changes_columns(steps: Sequence[Step]) -> Columns:
    """Return the changes of steps that change several timers each."""
    changes = [(step, timer) for step in steps for timer in step.decision.changes]
    return {
        **task_key_columns([step.task for step, _ in changes]),
        **_change_columns([timer for _, timer in changes]),
        "timer_trace": texts([step.trace for step, _ in changes]),
        "delay": bigints([_delay_of(timer) for _, timer in changes]),
    }


def _delay_of(timer: TimerChange | None) -> int | None:
    return microseconds(timer.after) if isinstance(timer, SetTimer) and timer.after is not None else None


def message_columns(steps: Sequence[Step]) -> Columns:
    """Return the messages of steps that send some."""
    sent = [
        (step, place, message) for step in steps for place, message in enumerate(step.decision.messages)
    ]
    messages = [message for _, _, message in sent]
    return {
        **task_key_columns([step.task for step, _, _ in sent]),
        "n": bigints([place for _, place, _ in sent]),
        "message_type": texts([_message_type(message) for message in messages]),
        **columns_of(texts, messages, "namespace", "process_id", "name", "idempotency_key"),
        **columns_of(blobs, messages, "request_hash", "args"),
        "process_metadata": jsons([json_text(message.metadata or {}) for message in messages]),
        "trace": texts([step.trace for step, _, _ in sent]),
    }


def _message_type(message: Message) -> TaskType:
    return TaskType.INIT if message.kind == "start" else TaskType.NOTIFY


def _event_columns(steps: Sequence[Step]) -> Columns:
    events = [
        (step.task, event_id, event)
        for step in steps
        if step.decision.events
        # Nobody reads the events of a removed process but readers of a feed.
        and (step.decision.feeds or step.decision.disposition is not Disposition.REMOVE)
        for event_id, event in enumerate(step.decision.events, start=step.process.last_event_id + 1)
    ]
    return _columns_of_events(events) if events else _NO_EVENTS


def _columns_of_events(events: Sequence[tuple[Task, int, Event]]) -> Columns:
    return {
        "event_process_no": bigints([task.process_no for task, _, _ in events]),
        "event_task_id": bigints([task.task_id for task, _, _ in events]),
        "event_id": bigints([event_id for _, event_id, _ in events]),
        "event_metadata": jsons([json_text(event.metadata) for _, _, event in events]),
        "event_payload": blobs([event.payload for _, _, event in events]),
    }


_NO_EVENTS = _columns_of_events(())


def _delay(decision: Decision) -> int | None:
    if decision.retry_interval is not None:
        return microseconds(decision.retry_interval)
    return _delay_of(decision.timer)


def task_key_columns(tasks: Sequence[Task]) -> Columns:
    return {
        "process_no": bigints([task.process_no for task in tasks]),
        "task_id": bigints([task.task_id for task in tasks]),
        "worker_id": bigints([task.worker_id for task in tasks]),
        "lease": bigints([task.lease for task in tasks]),
    }


def life_columns(life: Life) -> Columns:
    """Return the key of a life of a process, in the columns of a task, which stay NULL."""
    nothing = bigints([None])
    keys = {"task_id": nothing, "worker_id": nothing, "lease": nothing, "feeds": booleans([False])}
    return {"process_no": bigints([life.process_no]), "birth": bigints([life.birth]), **keys}


def key_columns(keys: Sequence[TaskKey]) -> Columns:
    """Return the identities of tasks."""
    return {
        **columns_of(bigints, keys, "process_no", "task_id", "birth"),
        **columns_of(texts, keys, "idempotency_key"),
        **columns_of(blobs, keys, "request_hash"),
    }


def redo_columns(requests: Sequence[Request]) -> Columns:
    """Return the columns of requests that run ended tasks again, and the identities of those tasks."""
    old = key_columns([request.redoes for request in requests if request.redoes is not None])
    lives = {name: old.pop(name) for name in ("process_no", "birth")}
    return {
        **request_columns(requests),
        **lives,
        **{f"old_{name}": column for name, column in old.items()},
    }


def release_columns(tasks: Sequence[Task]) -> Columns:
    """Return the keys of tasks that go back to the schedule, each at its own time."""
    nothing = [None] * len(tasks)
    return {**task_key_columns(tasks), "delay": bigints(nothing), "detail": texts(nothing)}


def ending_columns(steps: Sequence[Step]) -> Columns:
    """Return the keys of steps that break or remove their processes, and the reasons."""
    return {
        **task_key_columns([step.task for step in steps]),
        "birth": bigints([step.process.birth for step in steps]),
        "detail": texts([step.decision.reply.error for step in steps]),
        "feeds": booleans([step.decision.feeds for step in steps]),
    }


def import_columns(item: Import) -> Columns:
    return {
        "namespace": item.namespace,
        "process_id": item.process_id,
        "idempotency_key": item.idempotency_key,
        "birth": item.birth,
        "status": item.status,
        "detail": item.detail,
        "aux_state": item.aux_state,
        "process_metadata": json_text(item.metadata or {}),
        "last_event_id": len(item.events),
        "event_id": bigints(range(1, len(item.events) + 1)),
        "event_timestamp": timestamps([event.timestamp for event in item.events]),
        "event_metadata": jsons([json_text(event.metadata) for event in item.events]),
        "event_payload": blobs([event.payload for event in item.events]),
        **_change_columns(item.timers),
        "delay": bigints([_delay_of(timer) for timer in item.timers]),
    }
