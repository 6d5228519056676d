"""Failures in groups: broken processes and retried timers that failed in the same way.

Rule: a group is a namespace, a handler and a message without what differs from one failure to the next:
numbers, ids, quoted values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from progressor.monitoring import Failed

# The order matters: an id has digits, and may stand in quotes. A worker's id is 16 hexadecimal digits; any
# other id is recognised by having both digits and letters.
_DIFFERS = (
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?:[0-9a-f]{16}|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,})\b"), "<id>"),
    (re.compile(r"'[^']*'|\"[^\"]*\""), "'…'"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<n>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)
# White space that is more than one blank, such as the end of a line: a pattern cannot tell how much it is.
_BREAK = re.compile(r"\s{2,}|[^\S ]")
_LONGEST = 200
# The end of a message that was cut off within one of the marks above.
_CUT_MARK = re.compile(r"(?:<(?:n|id?)?|'…?)$")
_STANDS_FOR_MORE = re.compile("<id>|<n>|'…'| ?… ?")
EVER = timedelta(days=365_000)
"""The longest time to look back: nothing is older, and PostgreSQL cannot subtract every timedelta."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one handler with one message; `process_id` and `error` are those of the last failure.

    `message` is without what differs within the group; `error` has it, in its first 500 characters.
    `status` is `broken`, or `retrying` for timers that failed and are tried again. `at_least`: there are
    more failures than were looked at.
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
    # An API of an earlier release does not tell it.
    error: str = ""


def normalised(error: str) -> str:
    """Return a message without what differs from one failure to the next: ids, numbers, quoted values.

    It is one line; … stands for the end of a line, and for what is cut off.
    """
    text = _BREAK.sub(" … ", error)
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    return text if len(text) <= _LONGEST else f"{_CUT_MARK.sub('', text[: _LONGEST - 1])}…"


def bulk_filter_of(handler: str) -> str | None:
    """Return the handler of a group as bulks name it: its call, else the whole; None if no task failed."""
    task_type, _, name = handler.partition(" ")
    if task_type == "put":
        return None
    return name if task_type in ("call", "notify") else handler


def pattern_of(message: str) -> str:
    """Return the pattern of SQL's LIKE for the messages of a group, of which this is the normalised one."""
    text = message.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return _STANDS_FOR_MORE.sub("%", text)


def grouped(failures: Iterable[Failed]) -> list[FailureGroup]:
    """Return failures in their groups, the largest first."""
    kinds: dict[tuple[str, str, str, str], list[Failed]] = {}
    for each in failures:
        key = (each.namespace, each.status, each.handler, normalised(each.error))
        kinds.setdefault(key, []).append(each)
    groups = [_group_of(key, found) for key, found in kinds.items()]
    return sorted(groups, key=lambda group: (-group.count, group.namespace, group.handler))


def those_of(
    failures: Iterable[Failed], *, namespace: str, status: str, handler: str, message: str
) -> list[Failed]:
    """Return the failures of one group, one of each process, by the ids of their processes."""
    wanted = (namespace, status, handler, message)
    found = {
        each.process_id: each
        for each in failures
        if (each.namespace, each.status, each.handler, normalised(each.error)) == wanted
    }
    return [found[process_id] for process_id in sorted(found)]


def _group_of(key: tuple[str, str, str, str], found: Sequence[Failed]) -> FailureGroup:
    first = min(each.at for each in found)
    last = max(reversed(found), key=lambda each: each.at)
    return FailureGroup(*key, len(found), found[0].at_least, first, last.at, last.process_id, last.error)
