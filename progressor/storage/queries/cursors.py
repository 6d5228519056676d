"""Cursors of searches: the places in their orders, as texts that a caller gives back."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import NamedTuple

from progressor.errors import InvalidRequest
from progressor.inputs import LAST_ID, check_count, check_moment
from progressor.storage.queries.criteria import Wanted


class SearchPlace(NamedTuple):
    """A place in the order of a search: a namespace, a time, and the number of a process or a task."""

    namespace_no: int
    at: datetime
    no: int


def written(place: SearchPlace, wanted: Wanted) -> str:
    """Return the cursor of the page behind a place of this search."""
    key = [_order_of(wanted), place.namespace_no, place.at.isoformat(), place.no]
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def place_of(cursor: str | None, wanted: Wanted) -> SearchPlace | None:
    """Return the place of a cursor, None for none; InvalidRequest if this search did not give it out."""
    if cursor is None:
        return None
    try:
        ordered_by, namespace_no, at, no = json.loads(base64.urlsafe_b64decode(cursor))
        place = SearchPlace(
            check_count("namespace_no", namespace_no, least=0, most=2**31 - 1),
            check_moment("at", datetime.fromisoformat(at)),
            check_count("no", no, least=0, most=LAST_ID),
        )
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("cursor is not one that search gave out", field="cursor") from None
    if ordered_by != _order_of(wanted):
        raise InvalidRequest("cursor is of a search for other timers", field="cursor")
    return place


def _order_of(wanted: Wanted) -> str:
    return "due" if wanted.timer == "overdue" else "created"
