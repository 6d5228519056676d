"""Mailboxes: how many requests wait, for how long, on which processes, and until when.

Rule: every count has a bound, so that a deep mailbox costs no more than a shallow one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from progressor.monitoring import Mailbox, WaitingRequests
from progressor.storage.admin.monitoring import Overview, age_of
from progressor.storage.postgres.arrays import bigints
from progressor.storage.statements import Params, Row

# Mailboxes that a look reaches besides those of processes that run; how far it counts each of them.
_HEADS = 1000
_SHALLOW = 100
# Mailboxes, the deepest, that are counted further; how far.
_DEEPEST = 5
_DEEP = 100_000
# The pace of a mailbox is that of its last _STEPS requests, those that ended within _SPAN.
_STEPS = 100
_SPAN = timedelta(minutes=10)


class Mailboxes(Overview):
    """Bounded looks at mailboxes; none of them locks anything."""

    async def waiting(self, namespace: str, *, now: datetime | None = None) -> WaitingRequests:
        """Count the requests that wait in a namespace, also those that wait behind others."""
        return await self._waiting_of(await self._rows("waiting", **waiting_params(namespace, now)), now)

    async def _waiting_of(self, rows: Sequence[Row], now: datetime | None) -> WaitingRequests:
        """Return the requests that `waiting` found, and count the deepest mailboxes further."""
        total = rows[0]
        chosen = [row for row in rows if row["process_no"] is not None]
        found = await self._mailboxes([row["process_no"] for row in chosen], now)
        elsewhere = total["requests"] - sum(row["counted"] for row in chosen)
        return WaitingRequests(
            elsewhere + sum(each.requests for each in found),
            total["at_least"] or any(each.at_least for each in found),
            age_of(total["oldest"], total["now"]),
            tuple(sorted(found, key=lambda each: each.requests, reverse=True)),
        )

    async def mailbox(
        self, namespace: str, process_id: str, *, now: datetime | None = None
    ) -> Mailbox | None:
        """Look at the mailbox of a process; None if there is no such process."""
        rows = await self._rows("find_process", namespace=namespace, process_id=process_id)
        found = await self._mailboxes([row["process_no"] for row in rows], now)
        return found[0] if found else None

    async def _mailboxes(self, numbers: Sequence[int], now: datetime | None) -> list[Mailbox]:
        if not numbers:
            return []
        rows = await self._rows(
            "mailboxes", process_no=bigints(numbers), most=_DEEP, steps=_STEPS, span=_SPAN, now=now
        )
        return [
            Mailbox(
                row["process_id"],
                row["requests"],
                row["requests"] == _DEEP,
                age_of(row["oldest"], row["now"]),
                _through_in(row),
            )
            for row in rows
        ]


def waiting_params(namespace: str, now: datetime | None) -> Params:
    """Return the parameters of `waiting`."""
    return {"namespace": namespace, "heads": _HEADS, "most": _SHALLOW, "deepest": _DEEPEST, "now": now}


def _through_in(row: Row) -> timedelta | None:
    """Return the time until all that waits has run, at the pace of the last steps; None if unknown."""
    if not row["requests"]:
        return timedelta()
    # The steps that ended after the first of them took the time since its end.
    later: int = row["steps"] - 1
    if later < 1:
        return None
    since: timedelta = row["now"] - row["since"]
    return max(timedelta(), since / later * int(row["requests"]))
