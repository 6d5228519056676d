"""Events of a feed as they are told to sinks, made without a database."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from progressor.client.results import FeedEvent
from progressor.model import FeedKind

_rows = count(1)


def made(process_id: str = "acme", **given: Any) -> FeedEvent:
    """An event of a subscription, at the next position; `given` replaces fields of it."""
    row = next(_rows)
    fields: dict[str, Any] = {
        "position": f"1f-{row}-1-{row}-77",
        "namespace": "billing.subscription",
        "process_id": process_id,
        "kind": "event",
        "event_id": row,
        "name": "paid",
        "payload": {"amount": 5},
        "metadata": {"name": "paid"},
        "timestamp": datetime(2026, 3, 1, 12, 30, 0, 250, tzinfo=UTC),
        "task_id": 7,
        "id": f"1f-2a-{row}-63f0",
    }
    return FeedEvent(**(fields | given))


def of_kind(kind: FeedKind, **given: Any) -> FeedEvent:
    """What is no event of a process."""
    nothing = {"event_id": None, "name": None, "payload": None, "metadata": {}}
    return made(kind=kind, **(nothing | given))
