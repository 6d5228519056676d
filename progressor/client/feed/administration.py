"""The operator's methods of a client on subscriptions: how they stand, and what is parked.

Rule: what a reader does with its slices it does itself; an operator says what is wanted.
"""

from __future__ import annotations

from datetime import datetime

from progressor.acts import AuditVerb
from progressor.client.feed.positions import Start, check_start, place_at
from progressor.errors import InvalidRequest
from progressor.inputs import check_count, check_text, names_like
from progressor.node.node import Node
from progressor.storage import KnownSubscription, ParkedEntry

_MOST_PARKED = 1_000


class SubscriptionAdmin:
    """The operator's methods of Client on subscriptions."""

    _node: Node

    async def subscriptions(self) -> list[KnownSubscription]:
        """Return all durable subscriptions, by name."""
        storage = await self._node.connected()
        return await storage.known_subscriptions()

    async def parked(
        self, name: str | None = None, *, after: int = 0, limit: int = _MOST_PARKED
    ) -> list[ParkedEntry]:
        """Return what subscriptions, or one, have put aside, in the order in which they did.

        `after` is a number of an entry, to go on behind it; `limit` 1 to 1,000. Raise InvalidRequest if
        there is no such subscription.
        """
        if name is not None:
            check_text("name", name)
        behind = check_count("after", after, least=0)
        most = check_count("limit", limit, least=1, most=_MOST_PARKED)
        storage = await self._node.connected()
        found = await storage.parked_entries(name, behind=behind, limit=most)
        if name is not None and not found:
            await self._check_known(name)
        return found

    async def retry_parked(self, name: str, number: int | None = None) -> int:
        """Have what a subscription has put aside tried again; return how many entries.

        With the `number` of one, all of its process. What fails again stays aside. Raise InvalidRequest if
        there is no such subscription or entry.
        """
        if number is not None:
            check_count("number", number, least=1)
        return await self._act_on_parked(name, number, AuditVerb.RETRY_PARKED)

    async def skip_parked(self, name: str, number: int) -> int:
        """Leave an entry out for good, and have what waits behind it tried; return how many entries.

        The act is noted with its reason (`acting`). Raise as `retry_parked`.
        """
        check_count("number", number, least=1)
        return await self._act_on_parked(name, number, AuditVerb.SKIP_PARKED)

    async def _act_on_parked(self, name: str, number: int | None, verb: AuditVerb) -> int:
        check_text("name", name)
        storage = await self._node.connected()
        many = await storage.act_on_parked(
            name, number, skip=verb is AuditVerb.SKIP_PARKED, act=self._node.act(verb)
        )
        if not many:
            await self._check_known(name)
            if number is not None:
                raise InvalidRequest(
                    f"subscription {name!r} has nothing parked with the number {number}", field="number"
                )
        return many

    async def park_failing(self, name: str) -> int:
        """Have what fails in a subscription put aside at its next attempt, so that the rest goes on.

        Return in how many slices something fails. Raise InvalidRequest if there is no such subscription.
        """
        check_text("name", name)
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.PARK_FAILING)
        many = await storage.park_failing(name, act=act)
        if not many:
            await self._check_known(name)
        return many

    async def move_subscription(self, name: str, to: Start) -> None:
        """Let a subscription go on from another place, with nothing parked: `to` is as `start` of it.

        From `beginning`, a projection clears its tables first. Raise InvalidRequest if there is no such
        subscription, and FeedTruncated if it cannot go on there.
        """
        check_text("name", name)
        start: str | datetime = check_start("to", to)
        storage = await self._node.connected()
        place = await place_at(storage, start)
        act = self._node.act(AuditVerb.MOVE_SUBSCRIPTION)
        if not await storage.move_subscription(name, place, act=act):
            await self._check_known(name)

    async def remove_subscription(self, name: str) -> None:
        """Forget a subscription, how far it has come, and what it has put aside; its readers end.

        Raise InvalidRequest if there is no such subscription.
        """
        check_text("name", name)
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.REMOVE_SUBSCRIPTION)
        if not await storage.remove_subscription(name, act=act):
            await self._check_known(name)

    async def _check_known(self, name: str) -> None:
        known = [each.name for each in await self._node.storage.known_subscriptions()]
        if name not in known:
            meant = f": there are {names_like(name, known)}" if known else ": there is none yet"
            raise InvalidRequest(f"there is no subscription {name!r}{meant}", field="name")
