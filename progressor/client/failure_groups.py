"""What fails, in groups: broken processes and retried timers that failed in the same way.

Rule: a group is a namespace, a handler and a message without what differs from one failure to the next:
numbers, ids, quoted values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from progressor.monitoring import Failed

# In this order: an id has digits, and may stand in quotes. An id of a worker is 16 hexadecimal digits, any
# other one is known by having digits and letters.
_DIFFERS = (
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?:[0-9a-f]{16}|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,})\b"), "<id>"),
    (re.compile(r"'[^']*'|\"[^\"]*\""), "'…'"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<n>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)
_LONGEST = 200
EVER = timedelta(days=365_000)
"""Before that there was nothing, and PostgreSQL has no time for it."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one handler with one message; `process_id` is the one of the last.

    `status` is `broken`, or `retrying` for timers that failed and are tried again. `at_least`: there were
    too many to look at all.
    """

    namespace: str
    status: str
    handler: str
    message: str
    count: int
    at_least: bool
    first_seen: datetime
    last_seen: datetime
    process_id: str


def normalised(error: str) -> str:
    """A message without what differs from one failure to the next."""
    text = " ".join(error.split())
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def grouped(failures: Iterable[Failed]) -> list[FailureGroup]:
    """Failures in their groups, the largest first."""
    groups: dict[tuple[str, str, str, str], FailureGroup] = {}
    for each in failures:
        key = (each.namespace, each.status, each.handler, normalised(each.error))
        known = groups.get(key)
        if known is None:
            groups[key] = FailureGroup(*key, 1, each.at_least, each.at, each.at, each.process_id)
            continue
        is_last = each.at >= known.last_seen
        groups[key] = replace(
            known,
            count=known.count + 1,
            first_seen=min(known.first_seen, each.at),
            last_seen=max(known.last_seen, each.at),
            process_id=each.process_id if is_last else known.process_id,
        )
    return sorted(groups.values(), key=lambda group: (-group.count, group.namespace, group.handler))
