"""The monitor of subscriptions: it publishes how far behind each is, what it has parked, and what fails.

Rule: it reads; and like all who look at the feed, it gives what is committed its positions, so that a lag
shows without any reader. Any number may run; each publishes the same.
"""

from __future__ import annotations

from datetime import timedelta

from progressor import metrics
from progressor.node.node import Node
from progressor.services.service import PeriodicService

_INTERVAL = timedelta(seconds=10)
_GAUGES = (metrics.SUBSCRIPTION_AGE, metrics.SUBSCRIPTION_PARKED, metrics.SUBSCRIPTION_FAILING)


class SubscriptionMonitor(PeriodicService):
    """The service that looks at all subscriptions every `interval`."""

    name = "subscription monitor"

    def __init__(self, node: Node, *, interval: timedelta = _INTERVAL) -> None:
        super().__init__(interval)
        self._node = node
        self._published: set[str] = set()

    async def run_once(self) -> timedelta | None:
        """Look once; return None for a whole interval."""
        found = await self._node.storage.known_subscriptions()
        for each in found:
            metrics.SUBSCRIPTION_AGE.labels(each.name).set(each.age.total_seconds() * 1000)
            metrics.SUBSCRIPTION_PARKED.labels(each.name).set(each.parked)
            metrics.SUBSCRIPTION_FAILING.labels(each.name).set(each.error is not None or each.is_lost)
        self._forget(self._published - {each.name for each in found})
        self._published = {each.name for each in found}
        return None

    async def stop(self) -> None:
        await super().stop()
        # A gauge that nobody updates any more must not keep its last value.
        self._forget(self._published)
        self._published = set()

    def _forget(self, names: set[str]) -> None:
        for name in names:
            for gauge in _GAUGES:
                gauge.remove(name)
