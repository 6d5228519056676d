"""Leftovers: what removed processes leave behind, and what readers of the feed had time to read.

Rule: all is deleted in pieces of bounded size, each a transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from progressor.storage.admin.audit import Audited

_MOST_ROWS, _MOST_BYTES = 10_000, 64 * 1024 * 1024  # Deleted in a few seconds, per transaction.
FEED_KEPT = timedelta(days=7)
"""The time for which readers find what happened in the feed."""
_VERBS = ("drop_rows", "drop_removed", "drop_fed", "lock_feed", "number_feed", "drop_feed")


class Leftovers(Audited):
    """The operation that deletes them."""

    async def drop_leftovers(self, *, limit: int = 1000, now: datetime | None = None) -> bool:
        """Forget what is left of up to `limit` removed processes, and as many old rows of the feed.

        Return True if there may be more.
        """
        params: dict[str, object] = {
            "limit": limit,
            "rows": _MOST_ROWS,
            "bytes": _MOST_BYTES,
            "kept": FEED_KEPT,
            "now": now,
        }
        params["always"] = False
        statements = dict.fromkeys(_VERBS, params)
        results = await self._transact("drop_leftovers", statements)
        return any(row.get("has_more") for rows in results.values() for row in rows)
