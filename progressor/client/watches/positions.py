"""Positions of watches: how far a consumer has read one process, as a text to go on behind."""

from __future__ import annotations

import re
import zlib
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from progressor.errors import InvalidRequest
from progressor.inputs import LAST_ID, check_namespace, check_text
from progressor.model import Life

# Number and birth of the life, last event, version of the row or `x` for a removed process, mark of the
# event, which older releases do not give, and the name.
_POSITION = re.compile(
    r"(\d{1,19})-(n?\d{1,19}|x)-(\d{1,19})-(\d{1,10}|x)(?:-(\d{1,19}))?-([0-9a-f]{8})", re.ASCII
)
UNKNOWN = 0
"""The version of a row that was not read whole: no transaction has this number."""
REMOVED = -1
"""The version of a process that is removed."""


class WatchPlace(NamedTuple):
    """A place in the life of a process: behind an event, as its row was; None: before it was ever read.

    `mark` is that of the event, 0 if nobody knows it: where a server has lost the event, another one gets
    its number, and has another mark.
    """

    life: Life
    last: int | None
    version: int
    mark: int = 0

    @classmethod
    def of(cls, position: str, namespace: str, process_id: str) -> WatchPlace:
        """Return the place of a position; raise InvalidRequest if it is none of this process."""
        found = _POSITION.fullmatch(position) if isinstance(position, str) else None
        numbers = () if found is None else found.group(1, 2, 3, 5)
        if found is None or max(int(each.strip("nx") or 0) for each in numbers if each) > LAST_ID:
            raise InvalidRequest(
                f"after must be the position of a change, not {position!r:.80}", field="after"
            )
        if found[6] != _name(namespace, process_id):
            raise InvalidRequest("after is the position of another process", field="after")
        birth = None if found[2] == "x" else int(found[2].replace("n", "-"))
        version = REMOVED if found[4] == "x" else int(found[4])
        return cls(Life(int(found[1]), birth), int(found[3]), version, int(found[5] or 0))

    def shown(self, namespace: str, process_id: str) -> str:
        """Return the position."""
        birth = "x" if self.life.birth is None else str(self.life.birth).replace("-", "n")
        version = "x" if self.version == REMOVED else self.version
        name = _name(namespace, process_id)
        return f"{self.life.process_no}-{birth}-{self.last or 0}-{version}-{self.mark}-{name}"


def mark_of(timestamp: datetime | None) -> int:
    """Return the mark of the event of this time; 0 for one that nobody has."""
    if timestamp is None:
        return 0
    # An imported event may be of any year.
    return (timestamp - datetime.min.replace(tzinfo=UTC)) // timedelta(microseconds=1)


def _name(namespace: str, process_id: str) -> str:
    return f"{zlib.crc32(f'{namespace}/{process_id}'.encode()):08x}"


def place_of(namespace: str, process_id: str, after: str | None) -> WatchPlace | None:
    """Return the place behind which a watch begins; raise InvalidRequest for a wrong name or position."""
    check_namespace(namespace)
    check_text("process_id", process_id)
    return None if after is None else WatchPlace.of(after, namespace, process_id)
