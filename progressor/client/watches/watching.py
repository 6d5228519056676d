"""The method of Client that watches a process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from operator import attrgetter

from progressor.client.results import ProcessChange
from progressor.client.watches.positions import WatchPlace, place_of
from progressor.client.watches.process_watch import Watches


class Watching:
    """The method of Client that watches a process."""

    watches: Watches

    def watch(
        self, namespace: str, process_id: str, *, after: str | None = None, state: bool = False
    ) -> AsyncIterator[ProcessChange]:
        """Return a process as its steps are committed: `async for change in client.watch(…): …`.

        It begins with the process as it is, without events; with `after`, the position of a change, with
        what has changed since. It ends behind the change whose status is `removed`. Statuses that are over
        when the loop asks are passed over, events are not. `state`: with the state in each change.

        The loop raises ProcessNotFound if there is no such process, HistoryTruncated if the retention has
        deleted what comes behind `after`, InvalidRequest if this client watches 10,000 processes, and
        Undecryptable at a value that does not decrypt.
        """
        place = place_of(namespace, process_id, after)
        return self._changes(namespace, process_id, place, state=state)

    async def _changes(
        self, namespace: str, process_id: str, place: WatchPlace | None, *, state: bool
    ) -> AsyncIterator[ProcessChange]:
        typed = attrgetter("state") if state else None
        watch = await self.watches.begin(namespace, process_id, place, state=typed)
        try:
            while not watch.is_over:
                await watch.waits()
                change = await watch.change()
                if change is not None:
                    yield change
        finally:
            watch.leave()
