"""Positions: places in the feed as texts that a reader keeps.

Rule: a position is opaque to users. Only what this module writes is read back; anything else is refused
before the database is asked.
"""

from __future__ import annotations

import re
from datetime import datetime

from progressor.errors import FeedTruncated, InvalidRequest
from progressor.inputs import LAST_ID, check_moment
from progressor.storage import FeedPlace, Storage

# Epoch, row, process, entry, and the mark of the row; the next process of a walk, and what is read of it.
_POSITION = re.compile(
    r"([0-9a-f]{1,16})-([0-9]{1,18})-([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})"
    r"(?:-w([0-9]{1,19})\.([0-9]{1,19}))?",
    re.ASCII,
)

Start = str | datetime
"""Where reading begins: `latest`, `beginning`, a position, or a moment with a time zone."""


def position_of(place: FeedPlace) -> str:
    """Return the text of a place."""
    text = f"{place.epoch:x}-{place.position}-{place.item}-{place.n}-{place.mark}"
    # Nothing read of a process is -1.
    return text if place.walk is None else f"{text}-w{place.walk}.{place.walk_n + 1}"


def check_start(name: str, start: Start) -> Start:
    """Return where to begin as it is; InvalidRequest if it is nothing that can be read."""
    if isinstance(start, datetime):
        return check_moment(name, start)
    if start not in ("latest", "beginning"):
        place_of(start, field=name)
    return start


async def place_at(storage: Storage, start: Start) -> FeedPlace:
    """Return the place of where to begin; FeedTruncated if what comes from there on is not all there."""
    if isinstance(start, datetime):
        place = await storage.feed_place_at(start)
        if place is None:
            raise FeedTruncated(start.isoformat(), "what the feed had from then on is deleted in part")
        return place
    if start not in ("latest", "beginning"):
        place = place_of(start)
        gap = await storage.feed_gap(place)
        if gap is not None:
            raise FeedTruncated(start, gap)
        return place
    head = await storage.feed_head()
    return head.last_place if start == "latest" else head.beginning


def place_of(position: str, *, field: str = "position") -> FeedPlace:
    """Return the place of a position; InvalidRequest if it is none."""
    found = _POSITION.fullmatch(position) if isinstance(position, str) else None
    if found is None or max(numbers := [int(each) for each in found.groups()[1:] if each]) > LAST_ID:
        raise InvalidRequest(
            f"{field} must be latest, beginning, a moment with its offset, or the position of an event, "
            f"not {position!r:.80}",
            field=field,
        )
    row, item, n, mark, *walk = numbers
    place = FeedPlace(row, item, n, mark, int(found[1], 16))
    return place._replace(walk=walk[0], walk_n=walk[1] - 1) if walk else place
