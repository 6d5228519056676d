"""The checks of the feed's readers: who tails it, who has a durable subscription, and a projection.

Rule: what a loss took is accounted task by task. Nothing else may be missing, doubled or out of order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from benchmarks.chaos.case import Case
from benchmarks.chaos.follower import Name, Told
from benchmarks.chaos.tallies import Tally, amount_of
from progressor import Event


def followed_once(case: Case) -> Iterator[str]:
    """A reader that tails the feed through all faults sees every event of a process once, in the order of
    its history. It begins anew only if it is told of a loss, and then with what is stored."""
    readings, stored = case.books.readings, _Stored(case)
    if len(readings) - 1 > case.lost.times:
        yield f"told {len(readings) - 1} times that the feed has lost something; {case.lost.times} losses"
    for number, reading in enumerate(readings):
        for name, events in reading.events.items():
            where = f"reading {number}, {name[1]}"
            found = [*_out_of_order(events), *stored.strange(events, excused=reading is not readings[-1])]
            if (first := events[0].event_id) > 1 and not (number and stored.are_swept(name, first)):
                found.append(f"it begins with event {first}")
            yield from (f"{where}: {each}" for each in found)
    for name, history in stored.histories.items():
        if (last := readings[-1].last_of(name)) != len(history):
            yield f"{name[1]}: seen up to event {last}, of {len(history)}"


def delivered(case: Case) -> Iterator[str]:
    """Readers of a durable subscription get every event at least once, those of a process in order: each
    behind all before it. What its reader has committed comes again only after a loss."""
    told: defaultdict[Name, list[Told]] = defaultdict(list)
    yield from _delivered_in_order(case, told)
    stored = _Stored(case)
    for name, history in stored.histories.items():
        fitting = {each.event_id for each in told[name] if each.is_of(history.get(each.event_id))}
        for event_id in sorted(history.keys() - fitting):
            yield f"{name[1]}: event {event_id} was not delivered"
    for name, events in told.items():
        yield from (f"{name[1]}: {found}" for found in stored.strange(events, excused=True))


def _delivered_in_order(case: Case, told: defaultdict[Name, list[Told]]) -> Iterator[str]:
    seen: set[tuple[Name, int]] = set()
    committed: set[tuple[str, Name, int]] = set()
    for batch in case.books.deliveries.batches:
        for event in batch.events:
            number = event.event_id
            if number > 1 and (event.name, number - 1) not in seen:
                yield f"{event.process_id}: event {number} came to {batch.reader} before {number - 1}"
            if (batch.reader, event.name, number) in committed and not case.lost.times:
                yield f"{event.process_id}: {batch.reader} has committed {number}, and got it again"
            seen.add((event.name, number))
            told[event.name].append(event)
        for name in {event.name for event in batch.events}:
            found = _out_of_order([event for event in batch.events if event.name == name])
            yield from (f"{name[1]}, in a batch: {each}" for each in found)
        if batch.is_committed:
            committed |= {(batch.reader, event.name, event.event_id) for event in batch.events}


def projected_once(case: Case) -> Iterator[str]:
    """The rows of a projection are what the stored events give, also after a loss, which takes both: each
    event once, in order; and so are its tallies."""
    projected, stored = case.books.projected, _Stored(case)
    for name in projected.rows.keys() | projected.tallies.keys() | stored.histories.keys():
        told, history = projected.rows.get(name, []), stored.histories.get(name, {})
        if [each.event_id for each in told] != sorted(history):
            yield f"{name[1]}: {_shown(told)} are projected, of {len(history)} events"
        yield from (f"{name[1]}: {found}" for found in stored.strange(told, excused=False))
        # Nobody knew the amount of what was deleted before it was read.
        unread = {each.event_id for each in told if each.is_deleted}
        known = [event.payload for event_id, event in history.items() if event_id not in unread]
        wanted = Tally(len(history), sum(map(amount_of, known)))
        if (found := projected.tallies.get(name, Tally())) != wanted:
            yield f"{name[1]}: the tally is {found}, but the events give {wanted}"


def never_held_up(case: Case) -> Iterator[str]:
    """The feed goes on while a transaction in another database has written and does not end: all that was
    saved since it began was seen before its end."""
    if not case.books.idle:
        yield "there was none"
        return
    last = case.books.idle[-1]
    since = [sight for sight in case.books.sights if sight.saved >= last.began]
    late = [sight for sight in since if not last.has(sight)]
    if late or not since:
        yield f"of {len(since)} events since {last.began}, {len(late)} were seen after {last.ended}"


class _Stored:
    """What is stored at the end, by process: its events by number, and which of them walks have deleted."""

    def __init__(self, case: Case) -> None:
        self.histories: dict[Name, dict[int, Event]] = {}
        self.swept: dict[Name, set[int]] = {}
        self._lost, self._losses = case.lost.tasks, case.lost.times
        for account in case.books.fed:
            name = (account.process.namespace, account.name)
            self.histories[name] = {event.event_id or 0: event for event in account.history}
            self.swept[name] = {event.event_id or 0 for event in account.swept.events}

    def are_swept(self, name: Name, before: int) -> bool:
        """Return whether walks have deleted all events before one."""
        return set(range(1, before)) <= self.swept.get(name, set())

    def strange(self, events: Iterable[Told], *, excused: bool) -> Iterator[str]:
        """Yield what is not stored as it was told, unless a loss took it; and what nobody has deleted.

        A copy that takes the server's place may have what a walk had deleted there.
        """
        for event in events:
            stored = self.histories.get(event.name, {}).get(event.event_id)
            if not event.is_of(stored):
                if not (excused and (event.process_id, event.task_id) in self._lost):
                    yield f"told {event}, but stored is {stored}"
            elif (
                event.is_deleted
                and event.event_id not in self.swept[event.name]
                and not (excused and self._losses)
            ):
                yield f"event {event.event_id} was told as deleted, and it is not"


def _out_of_order(events: Iterable[Told]) -> Iterator[str]:
    for before, after in pairwise(events):
        if after.event_id != before.event_id + 1:
            yield f"event {after.event_id} came behind {before.event_id}"


def _shown(events: Sequence[Told]) -> str:
    numbers = [each.event_id for each in events]
    return f"{len(numbers)} rows, {numbers[:3]}…{numbers[-3:]}"
