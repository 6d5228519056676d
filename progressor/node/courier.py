"""The courier: it delivers the messages of the outbox, a flight at a time, until none is due.

Rule: it keeps no message in memory. A ring is a hint that there is something to deliver: where a ring is
lost, with its OS process or before it, a sweep finds the messages. Any number of couriers may deliver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from progressor import metrics
from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of
from progressor.storage import Delivery, Outbox, WakesBehind, wakes_nobody
from progressor.supervision import Background

log = Logger("progressor.courier")

_LINES = OutageLines(
    "messages not delivered, going on", "messages still not delivered", "messages are delivered again"
)


class Courier:
    """The courier of an OS process.

    `work_waits` is called for each namespace in which tasks wait now, with those that have had a hint by
    `wakes`, behind the transaction.
    """

    def __init__(
        self,
        outbox: Outbox,
        work_waits: Callable[[str, Collection[str]], None],
        wakes: WakesBehind = wakes_nobody,
    ) -> None:
        self._outbox = outbox
        self._work_waits = work_waits
        self._wakes = wakes
        self._background = Background()
        self._outage = Outage(log, _LINES)
        self._rung = self._stopped = False
        self._rests = asyncio.Event()
        self._rests.set()

    @property
    def is_idle(self) -> bool:
        """Return whether no message is on its way by this courier."""
        return self._rests.is_set()

    async def idle(self) -> None:
        """Wait until no message is on its way by this courier."""
        await self._rests.wait()

    def ring(self) -> None:
        """Deliver what is due, soon; what is sent meanwhile is delivered too."""
        self._rung = True
        if self.is_idle and not self._stopped:
            self._rests.clear()
            self._background.begin("courier", self._deliver())

    async def _deliver(self) -> None:
        try:
            while self._rung:
                self._rung = False
                delivery = await self._outbox.deliver(wakes=self._wakes)
                self._note(delivery)
                self._rung = self._rung or delivery.more
        except ProgressorError as error:
            # What is left is found by the next ring or sweep.
            self._outage.failed(cause_of(error))
        else:
            self._outage.worked()
        finally:
            self._rung = False
            self._rests.set()

    def _note(self, delivery: Delivery) -> None:
        for namespace, count in delivery.delivered.items():
            metrics.MESSAGES.labels(namespace, "delivered").inc(count)
        for each in delivery.refused:
            metrics.MESSAGES.labels(each.namespace, "refused").inc()
            log.warning("message not delivered", extra=each.fields)
        for namespace in delivery.namespaces:
            self._work_waits(namespace, delivery.woken)

    async def stop(self) -> None:
        """End the flight under way; what it has not delivered stays in the outbox."""
        self._stopped = True
        await self._background.stop()
