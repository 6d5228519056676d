"""Entries of a feed, made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from progressor import FeedEvent, FeedKind

NS = "billing.subscription"
AT = datetime(2026, 3, 22, 6, 12, 27, 654321, tzinfo=UTC)


def event(process_id: str, n: int = 1, payload: Any = None, **changed: Any) -> FeedEvent:
    """The event of this number, `paid`."""
    return FeedEvent(
        position=f"1-{n}-0-{n}-1",
        namespace=NS,
        process_id=process_id,
        kind="event",
        event_id=n,
        name="paid",
        payload={"n": n} if payload is None else payload,
        metadata={},
        timestamp=AT,
        task_id=n,
        id=f"1-{process_id.encode().hex()}-{n}",
    )._replace(**changed)


def told(process_id: str, kind: FeedKind, n: int = 1) -> FeedEvent:
    """What happened to a process."""
    return FeedEvent(
        f"1-{n}-0-{n}-1",
        NS,
        process_id,
        kind,
        None,
        None,
        None,
        {},
        AT,
        n,
        f"1-{process_id.encode().hex()}-{kind}-{n}",
    )


def numbered(processes: int, each: int, *, first: int = 1) -> list[FeedEvent]:
    """So many events of so many processes, in turn, with numbers from `first`."""
    return [event(f"p{p}", first + n) for n in range(each) for p in range(processes)]


def by_process(found: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each process's events, in the order in which they were found."""
    numbers: dict[str, list[int]] = {}
    for process_id, n in found:
        numbers.setdefault(process_id, []).append(n)
    return numbers


def is_a_beginning_then_all(numbers: list[int], *, last: int) -> bool:
    """Whether they are 1 to `last`, behind nothing but earlier tries, each of which has 1 to something."""
    tries: list[list[int]] = []
    for n in numbers:
        if n == 1:
            tries.append([])
        if not tries or n != len(tries[-1]) + 1:
            return False
        tries[-1].append(n)
    return bool(tries) and tries[-1] == list(range(1, last + 1))
