"""Processes, traces and searches as tables for people and as plain values for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from progressor.answers import TraceEntry
from progressor.cli.output import clock, short, to_json, visible
from progressor.model import Event, ProcessStatus, TaskStatus
from progressor.process import Process

_STYLES = {
    ProcessStatus.INIT.value: "yellow",
    ProcessStatus.RUNNING.value: "green",
    ProcessStatus.ERROR.value: "bold red",
    TaskStatus.FINISHED.value: "green",
    TaskStatus.WAITING.value: "yellow",
    TaskStatus.BLOCKED.value: "yellow",
    TaskStatus.CANCELLED.value: "dim",
}


def process_plain(process: Process[Any], *, history: bool = True) -> dict[str, Any]:
    """A process in the words of JSON."""
    facts: dict[str, Any] = {
        "namespace": process.namespace,
        "process_id": process.process_id,
        "status": process.status,
        "previous_status": process.previous_status,
        "status_changed_at": process.status_changed_at,
        "created_at": process.created_at,
        "detail": process.detail,
        "corrupted_by": process.corrupted_by,
        "last_event_id": process.last_event_id,
        "state": _state(process),
        "metadata": process.metadata,
    }
    if history:
        facts["history"] = [_event_plain(event) for event in process.history]
    return facts


def entry_plain(entry: TraceEntry) -> dict[str, Any]:
    """A task of a trace in the words of JSON."""
    facts = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    facts["events"] = [_event_plain(event) for event in entry.events]
    return facts


def _event_plain(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "name": event.name,
        "timestamp": event.timestamp,
        "task_id": event.task_id,
        "metadata": event.metadata,
        "payload": event.payload,
    }


def _state(process: Process[Any]) -> Any:
    """The state, or its bytes if it is not JSON: a raw handler or a codec wrote it."""
    try:
        return process.state
    except ValueError:
        return process.aux_state


def process_view(process: Process[Any], events: Sequence[Event]) -> RenderableType:
    """What a person wants to know of a process."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    rows.add_row("process", Text(visible(f"{process.namespace}/{process.process_id}"), style="bold"))
    rows.add_row("status", _status(process.status.value, f"since {clock(process.status_changed_at)}"))
    if process.detail is not None:
        rows.add_row("detail", Text(visible(process.detail, keep_lines=True), style="red"))
        rows.add_row("broken by", f"task {process.corrupted_by}" if process.corrupted_by else "")
    rows.add_row("created", clock(process.created_at))
    rows.add_row("metadata", _json(process.metadata))
    rows.add_row("state", _json(_state(process)))
    rows.add_row("events", f"{process.last_event_id}, {len(events)} shown")
    return Group(rows, _history(events)) if events else rows


def _history(events: Sequence[Event]) -> Table:
    table = Table("id", "time", "event", "payload", "task", box=None, header_style="dim", pad_edge=False)
    for event in events:
        table.add_row(
            str(event.event_id),
            clock(event.timestamp),
            Text(short(event.name), style="bold"),
            Text(short(event.payload)),
            str(event.task_id or ""),
        )
    return table


def trace_view(entries: Sequence[TraceEntry]) -> RenderableType:
    """All tasks of a process, in their order."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in (
        "task",
        "what",
        "status",
        "scheduled",
        "ran for",
        "tried",
        "args",
        "answer or error",
        "events",
    ):
        table.add_column(name, overflow="fold")
    for entry in entries:
        failed = entry.error is not None
        table.add_row(
            str(entry.task_id),
            Text(_what(entry)),
            _status(entry.status.value),
            clock(entry.scheduled_time),
            _took(entry),
            str(entry.attempts_count + 1) if entry.running_time else "",
            Text(short(entry.args)),
            Text(short(entry.error if failed else entry.response), style="red" if failed else ""),
            Text(", ".join(short(event.name) or f"#{event.event_id}" for event in entry.events)),
        )
    return table


def _what(entry: TraceEntry) -> str:
    kind = entry.task_type.value
    return kind if entry.name is None else visible(f"{kind} {entry.name}")


def _took(entry: TraceEntry) -> str:
    if entry.running_time is None or entry.finished_time is None:
        return ""
    return f"{(entry.finished_time - entry.running_time) / timedelta(milliseconds=1):.1f} ms"


def search_view(processes: Sequence[Process[Any]]) -> Table:
    """A page of processes."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("process", "status", "since", "created", "events", "metadata", "detail"):
        table.add_column(name, overflow="fold")
    for process in processes:
        table.add_row(
            Text(visible(f"{process.namespace}/{process.process_id}"), style="bold"),
            _status(process.status.value),
            clock(process.status_changed_at),
            clock(process.created_at),
            str(process.last_event_id),
            Text(short(process.metadata) if process.metadata else ""),
            Text(short(process.detail), style="red"),
        )
    return table


def _status(status: str, more: str = "") -> Text:
    return Text.assemble((status, _STYLES.get(status, "")), f" {more}" if more else "")


def _json(value: Any) -> Text:
    return Text(visible(to_json(value, indent=2), keep_lines=True))
