"""Readers of a durable subscription, each an OS process that is killed and frozen as the others.

Rule: a batch is in the journal of its reader before it is committed. So whatever is delivered behind a
checkpoint comes later than the record of all that is before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from benchmarks.chaos.follower import Told
from benchmarks.chaos.journal import Journal, read
from benchmarks.chaos.ledger import ACCOUNTS, LEASE_SECONDS
from benchmarks.chaos.limits import COOKS, METERS
from progressor import Client, FeedTruncated, ProgressorError, Subscription, SubscriptionLost

SUBSCRIPTION = "chaos.readers"
FED = (ACCOUNTS, METERS, COOKS)
_SLICES = 4
# Small, so that much is under way when a reader dies.
_MOST = 20
_PAUSE = 0.1


async def read_for_ever(client: Client, path: Path) -> None:
    """Read on behind what was committed, whatever happens to slices, connections and servers."""
    journal = Journal(path)
    await journal.add(do="born")
    while True:
        subscription = client.subscription(
            SUBSCRIPTION,
            namespaces=FED,
            start="beginning",
            slices=_SLICES,
            lease_age=timedelta(seconds=LEASE_SECONDS),
        )
        try:
            async with subscription:
                await _read(subscription, journal)
        except FeedTruncated:
            # The checkpoint is of the server that is there, whatever this reader has read of another one.
            await journal.add(do="truncated")
        except ProgressorError as error:
            await journal.add(do="again", error=type(error).__name__)
        await asyncio.sleep(_PAUSE)


async def _read(subscription: Subscription, journal: Journal) -> None:
    async for batch in subscription.batches(max=_MOST):
        await journal.add(do="batch", at=time.monotonic(), events=[Told.of(event) for event in batch])
        try:
            await batch.commit()
        except SubscriptionLost:
            await journal.add(do="lost")
        else:
            await journal.add(do="committed")


@dataclass
class Batch:
    """What one reader was given at once; `at` is its machine's clock of durations, the same for all."""

    reader: str
    at: float
    events: list[Told]
    is_committed: bool = False


@dataclass
class Deliveries:
    """All batches, in the order in which they were noted, and how often something else came."""

    batches: list[Batch] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def read_deliveries(paths: Iterable[Path]) -> Deliveries:
    """Read what the readers wrote down."""
    found = Deliveries()
    for path in paths:
        batch = None
        for record in read(path):
            found.counts[record["do"]] += 1
            match record:
                case {"do": "batch", "at": at, "events": events}:
                    batch = Batch(path.stem, at, [Told(*event) for event in events])
                    found.batches.append(batch)
                case {"do": "committed"} if batch is not None:
                    batch.is_committed = True
    found.batches.sort(key=lambda each: each.at)
    return found
