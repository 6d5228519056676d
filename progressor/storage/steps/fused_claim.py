"""Waiting tasks that are claimed, run and saved in one transaction: one commit instead of two.

Rule: the statements are those of a claim and of the ends of steps, so every limit of a claim holds. Nobody
else sees a step that ends here as running; one that goes on is committed as claimed. What was locked stays
locked until the commit: the processes of all that was claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.rows import claimed_of, lite_outcomes_of, outcomes_of
from progressor.storage.statements import Params, Row
from progressor.storage.steps.claims import as_locked
from progressor.storage.steps.save import ending, lite_ending
from progressor.storage.values import Claimed, LostLease, Saved, Step


class FusedClaim:
    """An open transaction that has claimed tasks.

    `held` are those that may run here; `large` the rows of those whose values are to be read first.
    """

    def __init__(self, session: Session, verb: str, params: Params, now: datetime | None) -> None:
        self._session = session
        self._verb = verb
        self._params = {**params, "now": now}
        self._now = now
        self.held: list[Claimed] = []
        self.large: list[Row] = []
        self.has_saved = False

    async def begin(self) -> None:
        """Claim tasks."""
        statements = dict.fromkeys(("one_claim", self._verb), self._params)
        rows = (await self._session.begin(statements))[self._verb]
        for row in await as_locked(self._session, self._params, rows):
            if row["is_large"]:
                self.large.append(row)
            else:
                self.held.append(claimed_of(row))

    async def commit(self, steps: Sequence[Step], hints: Hints | None) -> list[Saved | LostLease | None]:
        """Save these steps, leave all others claimed, and return the outcomes of the steps.

        None is that of a step which was not saved, because something waits on its process: it is claimed.
        """
        if not steps:
            await self._session.commit({})
            return []
        self.has_saved = True
        if (saving := lite_ending(steps, self._now)) is not None:
            results = await self._session.commit(saving, hints)
            return [*lite_outcomes_of(steps, *(results[verb] for verb in saving))]
        return [*outcomes_of(steps, await self._session.commit(ending(steps, self._now), hints))]
