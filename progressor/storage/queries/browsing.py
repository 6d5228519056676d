"""Browsing: walks through processes in an order, for pages that must come soon whatever is wanted.

Rule: a walk looks at a bounded number of rows, each by the index of its order. It ends when it has found
enough or has looked at so many, and says where; what is wanted never changes its plan.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from progressor.storage.postgres.arrays import texts
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.queries.criteria import Wanted
from progressor.storage.queries.cursors import SearchPlace, place_of, written

# So many times as long a look takes at processes that lie apart: broken ones, and those of due timers.
_APART = 4


class Browsed(NamedTuple):
    """The processes that a walk found, and the cursor of where it ended; None: it found enough, or all."""

    process_nos: list[int]
    end: str | None


class Browsing(Transactions):
    """The walks."""

    async def browse(
        self, wanted: Wanted, *, cursor: str | None, looks: int, room: int, now: datetime | None = None
    ) -> Browsed:
        """Return the next processes behind a cursor, up to `room`, of the next `looks` of their order."""
        order, after = _order(wanted), place_of(cursor, wanted)
        names = wanted.names
        rows = await self._rows(
            f"browse_{order}",
            namespaces=None if names is None else texts(names),
            status=wanted.status,
            metadata=json.dumps(wanted.metadata) if wanted.metadata else None,
            has_timer={"none": False, "held": True}.get(wanted.timer or ""),
            created_after=wanted.created_after,
            created_before=wanted.created_before,
            # A timer that is due was set by a process of any age.
            begin_at=None if order == "due" else wanted.created_after,
            after_namespace=0 if after is None else after.namespace_no,
            after_at=None if after is None else after.at,
            after_no=None if after is None else after.no,
            looks=looks if order == "created" else max(1, looks // _APART),
            room=room,
            now=now,
        )
        found = [process_no for row in rows for process_no in row["process_nos"] or ()]
        ends = [
            SearchPlace(row["namespace_no"], row["end_at"], row["end_no"]) for row in rows if row["end_at"]
        ]
        return Browsed(found, written(ends[0], wanted) if ends else None)


def _order(wanted: Wanted) -> str:
    if wanted.timer == "overdue":
        return "due"
    return "broken" if wanted.timer == "held" or wanted.status == "error" else "created"
