"""Samples of stored states, read as the types of an app's namespaces. Nothing is changed.

Rule: a sample is spread over the time in which the processes of a namespace were created, and has the
oldest of them. Its size bounds the time and the memory; one page of states is held at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from progressor.client.client import Client
from progressor.errors import NamespaceNotFound
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.handlers.state.faults import state_faults

_PARTS = 20
_PAGE = 100
_MOST_EXAMPLES = 3


@dataclass(slots=True)
class FaultGroup:
    """States with the same fault: the field, the rule, their number and the first of their processes."""

    field: str
    rule: str
    states: int = 0
    processes: list[str] = dataclasses.field(default_factory=list)


@dataclass(slots=True)
class StateSample:
    """The outcome for one namespace.

    `states` were read, of which `unreadable` could not be; `is_whole`: there are no others. `skipped`: it
    has a raw handler, whose states no type describes.
    """

    namespace: str
    states: int = 0
    unreadable: int = 0
    is_whole: bool = False
    skipped: bool = False
    faults: list[FaultGroup] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """A span of time, and the place in it that was reached."""

    after: datetime
    before: datetime | None
    cursor: str | None = None


async def sample_states(
    client: Client, namespace: Namespace, *, size: int, progress: Callable[[int], None]
) -> StateSample:
    """Read up to `size` stored states of a namespace as its type; report how many were read so far."""
    sample = StateSample(namespace.name, skipped=namespace.is_raw)
    if sample.skipped:
        return sample
    groups: dict[tuple[str, str], FaultGroup] = {}
    parts = await _parts(client, namespace.name)
    while parts and sample.states < size:
        unread: list[_Part] = []
        for part in parts:
            most = min(_PAGE, size - sample.states, -(-size // _PARTS))
            if most <= 0:
                unread.append(part)
                continue
            page = await client.search(
                namespace=namespace.name,
                created_after=part.after,
                created_before=part.before,
                cursor=part.cursor,
                limit=most,
            )
            for process in page.items:
                _read(process, namespace, sample, groups)
            progress(sample.states)
            if page.cursor is not None:
                unread.append(replace(part, cursor=page.cursor))
        parts = unread
    sample.is_whole = not parts
    sample.faults = sorted(groups.values(), key=lambda each: -each.states)
    return sample


async def _parts(client: Client, namespace: str) -> Sequence[_Part]:
    """Return equal spans of the time from the oldest process until now; none without processes."""
    try:
        oldest = (await client.search(namespace=namespace, limit=1)).items
    except NamespaceNotFound:
        return ()
    if not oldest:
        return ()
    first = oldest[0].created_at
    now = datetime.now(UTC)
    span = max(now - first, timedelta(0)) / _PARTS
    starts: list[datetime | None] = [first + span * part for part in range(_PARTS)]
    return [_Part(after, before) for after, before in pairwise([*starts, None]) if after is not None]


def _read(
    process: Process[Any],
    namespace: Namespace,
    sample: StateSample,
    groups: dict[tuple[str, str], FaultGroup],
) -> None:
    sample.states += 1
    faults = state_faults(process.aux_state, wire=namespace.wire, shape=namespace.shape, of=process)
    sample.unreadable += bool(faults)
    for fault in dict.fromkeys((_in_any_item(each.field), each.rule) for each in faults):
        group = groups.setdefault(fault, FaultGroup(*fault))
        group.states += 1
        if len(group.processes) < _MOST_EXAMPLES:
            group.processes.append(process.process_id)


def _in_any_item(place: str) -> str:
    """Return the place of a fault without the numbers of items, so that equal faults are counted as one."""
    return ".".join("*" if part.isdecimal() else part for part in place.split("."))
