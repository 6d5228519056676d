"""Letters: messages as they stand in the outbox, and the requests that they become.

Rule: a letter is of its row alone. Those that one transaction delivers keep the order of each sender and
target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from progressor.inputs import new_lease
from progressor.model import TaskType
from progressor.storage.statements import Row
from progressor.storage.values import Request


class Letter(NamedTuple):
    """A message as it stands in the outbox, and the request that it becomes."""

    row: Row
    request: Request

    @property
    def key(self) -> tuple[int, int, int]:
        """The numbers of its row."""
        return key_of(self.row)

    @property
    def line(self) -> tuple[int, str, str]:
        """The sender and the target, between which the order is kept."""
        return self.row["process_no"], self.request.namespace, self.request.process_id

    @property
    def is_start(self) -> bool:
        """True if it starts its target."""
        return self.request.task_type is TaskType.INIT


def key_of(row: Mapping[str, int]) -> tuple[int, int, int]:
    """Return the numbers of a row of the outbox: its sender, the task of the step, and its place there."""
    return row["process_no"], row["task_id"], row["n"]


def together(rows: Sequence[Row]) -> list[Letter]:
    """Return those that one transaction can deliver, which makes starts before notices.

    A start waits for the next one if there is another message to its target, a notice if there is one of
    its key; and so do those after it.
    """
    letters: list[Letter] = []
    keys: dict[tuple[str, str], set[str]] = {}
    closed: set[tuple[str, str]] = set()
    for row in rows:
        letter = Letter(row, _request_of(row))
        target, key = (letter.request.namespace, letter.request.process_id), row["idempotency_key"]
        others = keys.setdefault(target, set())
        if target in closed or (letter.is_start and others) or key in others:
            closed.add(target)
            continue
        others.add(key)
        letters.append(letter)
    return letters


def _request_of(row: Row) -> Request:
    return Request(
        namespace=row["namespace"],
        process_id=row["process_id"],
        task_type=TaskType(row["task_type"]),
        idempotency_key=row["idempotency_key"],
        request_hash=bytes(row["request_hash"]),
        lease=new_lease(),
        name=row["name"],
        args=row["args"],
        process_metadata=row["metadata"],
        trace=row["trace"],
    )
