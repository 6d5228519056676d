"""Processes, traces and searches as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from progressor.calendars import json_of
from progressor.cli.output import clock
from progressor.cli.status import waiting
from progressor.cli.tables import Listing, facts_table
from progressor.client.results import TraceEntry
from progressor.handlers.process import Process
from progressor.http.wire.models import state_of
from progressor.model import Event, ProcessStatus, TaskStatus, TaskType, Timer, TimerStatus
from progressor.monitoring import Mailbox
from progressor.texts import recurs_text, rule_text, short, shown, through, visible

_STYLES = {
    ProcessStatus.INIT.value: "yellow",
    ProcessStatus.RUNNING.value: "green",
    ProcessStatus.ERROR.value: "bold red",
    TaskStatus.FINISHED.value: "green",
    TaskStatus.WAITING.value: "yellow",
    TaskStatus.BLOCKED.value: "yellow",
    TaskStatus.HELD.value: "bold yellow",
    TimerStatus.OVERDUE.value: "red",
    TaskStatus.CANCELLED.value: "dim",
}


def process_view(process: Process[Any], mailbox: Mailbox, events: Sequence[Event]) -> RenderableType:
    """Return a process for people: its facts, its mailbox, and these events."""
    rows = facts_table()
    rows.add_row("process", Text(visible(f"{process.namespace}/{process.process_id}"), style="bold"))
    rows.add_row("status", _status(process.status.value, f"since {clock(process.status_changed_at)}"))
    if process.detail is not None:
        rows.add_row("detail", Text(visible(process.detail, keep_lines=True), style="red"))
        rows.add_row("broken by", f"task {process.corrupted_by}" if process.corrupted_by else "")
    for place, timer in enumerate(process.timers.values()):
        rows.add_row("" if place else "timers" if len(process.timers) > 1 else "timer", _timer(timer))
    if not process.timers:
        rows.add_row("timer", "none")
    rows.add_row("waiting", _mailbox(mailbox))
    rows.add_row("created", clock(process.created_at))
    rows.add_row("metadata", _json(process.metadata))
    rows.add_row("state", _json(state_of(process)))
    deleted = process.first_event_id - 1
    rows.add_row(
        "events",
        f"{process.last_event_id}, {len(events)} shown" + (f", {deleted} deleted" if deleted else ""),
    )
    return Group(rows, history_view(events)) if events else rows


def _mailbox(mailbox: Mailbox) -> str:
    if not mailbox.requests:
        return "nothing"
    return f"{waiting(mailbox)}, through in {through(mailbox.through_in, at_least=mailbox.at_least)}"


def history_view(events: Sequence[Event]) -> Listing:
    """Return events for people, a row each."""
    listing = Listing("id", "time", "event", "payload", "task")
    for event in events:
        listing.add(
            str(event.event_id),
            clock(event.timestamp),
            Text(visible(event.name or ""), style="bold"),
            short(event.payload),
            str(event.task_id or ""),
        )
    return listing


def trace_view(entries: Sequence[TraceEntry]) -> RenderableType:
    """Return tasks in their order: a line each, below it arguments, answer, events, the whole error."""
    whats = [_what(entry) for entry in entries]
    wide = max((len(what) for what in whats), default=0)
    digits = len(str(entries[-1].task_id)) if entries else 0
    lines: list[RenderableType] = []
    for entry, what in zip(entries, whats, strict=True):
        line = Text.assemble(
            (f"{entry.task_id:>{digits}}", "dim"),
            f"  {what:<{wide}}  ",
            (f"{entry.status.value:<9}", _STYLES.get(entry.status.value, "")),
            (f"  {clock(entry.scheduled_time)}  {_took(entry)}{_where(entry)}", "dim"),
        )
        lines.append(line)
        if details := _details(entry):
            lines.append(Padding(details, (0, 0, 0, digits + 2)))
        if entry.error is not None:
            error = Text(f"→ {visible(entry.error, keep_lines=True)}", style="red")
            lines.append(Padding(error, (0, 0, 0, digits + 2)))
    return Group(*lines)


def _details(entry: TraceEntry) -> Text:
    """Return the arguments, the answer, the names of the events and the redo of a task."""
    parts: list[Text] = []
    if entry.args is not None:
        parts.append(Text(_given(entry)))
    if entry.response is not None:
        parts.append(Text(f"→ {short(entry.response)}"))
    if entry.events:
        names = ", ".join(short(event.name) or f"#{event.event_id}" for event in entry.events)
        parts.append(Text(f"events: {names}", style="cyan"))
    facts = (
        ("priority", entry.priority, "dim"),
        ("trace", entry.trace_id, "dim"),
        ("expires at", clock(entry.expires_at), "dim"),
        ("redoes task", entry.redoes, "cyan"),
        ("redone by task", entry.redone_by, "cyan"),
    )
    parts += [Text(f"{name} {value}", style=style) for name, value, style in facts if value]
    return Text("  ").join(parts)


def _given(entry: TraceEntry) -> str:
    """Return the arguments; of a timer that recurs its rule, and the time that it is for."""
    rule = recurs_text(entry.args) if entry.task_type is TaskType.TIMEOUT else None
    if rule is None:
        return short(entry.args)
    return f"{rule}, for {clock(datetime.fromisoformat(entry.args['nominal']))}"


def _what(entry: TraceEntry) -> str:
    kind = entry.task_type.value
    return kind if entry.name is None else visible(f"{kind} {entry.name}")


def _took(entry: TraceEntry) -> str:
    if entry.running_time is None or entry.finished_time is None:
        return ""
    took = f"{(entry.finished_time - entry.running_time) / timedelta(milliseconds=1):.1f} ms"
    return f"{took}, tried {entry.attempts_count + 1} times" if entry.attempts_count else took


def _where(entry: TraceEntry) -> str:
    """Return the worker that ran the task last, to look for in the logs."""
    return "" if entry.worker_id is None else f"  worker {entry.worker_id}"


def search_view(processes: Sequence[Process[Any]]) -> RenderableType:
    """Return a page of processes: a line each, and below it metadata, timer and detail."""
    names = [visible(f"{process.namespace}/{process.process_id}") for process in processes]
    wide = min(60, max((len(name) for name in names), default=0))
    lines: list[RenderableType] = []
    for process, name in zip(processes, names, strict=True):
        status = process.status.value
        lines.append(
            Text.assemble(
                (f"{name:<{wide}}", "bold"),
                "  ",
                (f"{status:<7}", _STYLES.get(status, "")),
                (f"  created {clock(process.created_at)}  {process.last_event_id} events", "dim"),
            )
        )
        if process.metadata:
            lines.append(Padding(Text(short(process.metadata)), (0, 0, 0, 4)))
        lines += (Padding(_timer(timer), (0, 0, 0, 4)) for timer in process.timers.values())
        if process.detail is not None:
            lines.append(Padding(Text(short(process.detail), style="red"), (0, 0, 0, 4)))
    return Group(*lines)


def _status(status: str, more: str = "") -> Text:
    return Text.assemble((status, _STYLES.get(status, "")), f" {more}" if more else "")


def _timer(timer: Timer) -> Text:
    status = timer.status.value
    name = f"{visible(timer.name)}: " if timer.name else ""
    return Text.assemble(
        f"{name}{timer.task_type.value} due {clock(timer.due)}  ",
        (status, _STYLES.get(status, "")),
        (_recurs(timer), "dim"),
    )


def _recurs(timer: Timer) -> str:
    if timer.nominal is None:
        return ""
    known = None if timer.every is None else rule_text(json_of(timer.every))
    rule = "by a rule of a newer release" if known is None else f"every {known}"
    # Its due time may differ, by a jitter or by hours.
    of = "" if timer.nominal == timer.due else f", for {clock(timer.nominal)}"
    then = ", from the end of its step" if timer.drift == "after" else ""
    return f"  {rule}{of}{then}" + ("" if timer.next is None else f", then {clock(timer.next)}")


def _json(value: Any) -> Text:
    return Text(visible(shown(value, indent=2), keep_lines=True))
