"""The checks of the feed's readers: sound records contradict nothing, damaged ones are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.chaos.case import Case
from benchmarks.chaos.evidence import Account
from benchmarks.chaos.feed_checks import delivered, followed_once, never_held_up, projected_once
from benchmarks.chaos.follower import Reading, Sight, Told
from benchmarks.chaos.idler import Span, lags
from benchmarks.chaos.ledger import ACCOUNTS
from benchmarks.chaos.losses import Lost
from benchmarks.chaos.readers import Batch, Deliveries
from benchmarks.chaos.tallies import Projected, Tally
from benchmarks.chaos.walks import SweptRows
from progressor import Event

MANY = 6
NAME = (ACCOUNTS, "a")
T0 = datetime(2024, 3, 1, tzinfo=UTC)


def told(number: int, **facts: Any) -> Told:
    """The event of this number; its task has ten times the number."""
    payload = {"nonce": f"n{number}", "amount": number}
    return Told(*NAME, number, 10 * number, payload, is_deleted=False)._replace(**facts)


def deleted(number: int) -> Told:
    return told(number, payload=None, is_deleted=True)


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass
class Records:
    """A whole record of one account with six events, of which walks have deleted the first two."""

    readings: list[list[Told]] = field(default_factory=lambda: [[told(n + 1) for n in range(MANY)]])
    rows: list[Told] = field(default_factory=lambda: [told(n + 1) for n in range(MANY)])
    tally: Tally = field(default_factory=lambda: Tally(MANY, 21))
    batches: list[Batch] = field(
        default_factory=lambda: [
            Batch("one", 1, [told(1), told(2)], is_committed=True),
            Batch("one", 2, [told(3), told(4)]),
            Batch("two", 3, [told(3), told(4), told(5)], is_committed=True),
            Batch("one", 4, [told(6)], is_committed=True),
        ]
    )
    lost: Lost = field(default_factory=Lost)
    seen_after: float = 1
    idle: Sequence[Span] = (Span(after(-9), after(-5)), Span(T0, after(60)))

    def found_by(self, check: Callable[[Case], Any]) -> list[str]:
        """What a check finds in it."""
        history = [Event(told(n).payload, {}, n, task_id=10 * n) for n in range(1, MANY + 1)]
        process: Any = SimpleNamespace(process_id="a", namespace=ACCOUNTS, last_event_id=MANY)
        readings = []
        for events in self.readings:
            reading = Reading()
            for each in events:
                reading.events[each.name].append(each)
            readings.append(reading)
        books: Any = SimpleNamespace(
            fed=[Account(process, [], history, SweptRows(events=history[:2]))],
            readings=readings,
            deliveries=Deliveries(self.batches),
            projected=Projected({NAME: self.rows}, {NAME: self.tally}),
            sights=[Sight(told(n), after(n), after(n + self.seen_after)) for n in range(MANY)],
            idle=self.idle,
        )
        clients: Any = SimpleNamespace()
        return list(check(Case(clients, books, self.lost, T0, T0)))


@pytest.mark.parametrize("check", [followed_once, delivered, projected_once, never_held_up])
def test_a_whole_record_contradicts_nothing(check: Callable[[Case], Any]) -> None:
    """Every event once, or again before its commit, in order."""
    assert Records().found_by(check) == []


def test_what_was_deleted_before_has_no_payload() -> None:
    """Its amount is in no tally."""
    rows = [deleted(1), *(told(n) for n in range(2, MANY + 1))]
    records = Records(readings=[rows], rows=rows, tally=Tally(MANY, 20))
    assert records.found_by(followed_once) == records.found_by(projected_once) == []


DAMAGED = {
    "missing": lambda events: events.pop(2),
    "the last is missing": lambda events: events.pop(),
    "the first is missing": lambda events: events.pop(0),
    "twice": lambda events: events.insert(2, events[2]),
    "out of order": lambda events: events.insert(2, events.pop(3)),
    "of another step": lambda events: events.append(events.pop()._replace(task_id=1)),
    "with another payload": lambda events: events.append(events.pop()._replace(payload={"nonce": "x"})),
    "deleted by nobody": lambda events: events.append(deleted(events.pop().event_id)),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_reading_is_found(damage: str) -> None:
    """Of the reader that tails the feed."""
    records = Records()
    DAMAGED[damage](records.readings[0])
    assert records.found_by(followed_once)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_projection_is_found(damage: str) -> None:
    """Of the rows, though the tally is right."""
    records = Records()
    DAMAGED[damage](records.rows)
    assert records.found_by(projected_once)


@pytest.mark.parametrize("tally", [Tally(MANY, 22), Tally(MANY - 1, 21), Tally()])
def test_a_wrong_tally_is_found(tally: Tally) -> None:
    """Though the rows are right."""
    assert Records(tally=tally).found_by(projected_once)


@pytest.mark.parametrize("damage", [name for name in DAMAGED if name != "twice"])
def test_a_damaged_delivery_is_found(damage: str) -> None:
    """Of the durable subscription, in which what was not committed comes twice."""
    events = [told(n + 1) for n in range(MANY)]
    DAMAGED[damage](events)
    batches = [Batch("one", number, [event]) for number, event in enumerate(events)]
    assert Records(batches=batches).found_by(delivered)


def test_what_was_committed_comes_again() -> None:
    """To the one who committed it: only a loss excuses that."""
    records = Records()
    records.batches.append(Batch("one", 5, [told(6)]))
    assert records.found_by(delivered)
    records.lost.times = 1
    assert records.found_by(delivered) == []


def test_a_loss_excuses_what_it_took() -> None:
    """The reader begins anew, with what walks have left; the events of lost steps are gone."""
    lost = told(4, task_id=77)
    records = Records(readings=[[told(1), told(2), told(3), lost], [told(n) for n in range(3, MANY + 1)]])
    assert len(records.found_by(followed_once)) == 2
    records.lost = Lost(times=1, tasks={("a", 77)})
    assert records.found_by(followed_once) == []
    records.batches.insert(2, Batch("one", 2.5, [lost]))
    assert records.found_by(delivered) == []


def test_a_deletion_may_be_lost() -> None:
    """A copy has what a walk had deleted: what was told before the loss is excused, nothing behind it."""
    before = [told(1), told(2), deleted(3)]
    records = Records(readings=[before, [told(n + 1) for n in range(MANY)]])
    assert records.found_by(followed_once)
    records.lost = Lost(times=1)
    assert records.found_by(followed_once) == []
    records.readings = [[*before, *(told(n) for n in range(4, MANY + 1))]]
    assert records.found_by(followed_once)


def test_a_loss_excuses_nothing_else() -> None:
    """Neither a lost event behind the last loss, nor a late beginning, nor one in the projection."""
    lost = Lost(times=1, tasks={("a", 77)})
    rest = [told(n) for n in range(3, MANY)]
    for last in ([*rest, told(MANY, task_id=77)], [*rest[1:], told(MANY)]):
        assert Records(readings=[[told(1)], last], lost=lost).found_by(followed_once)
    rows = [*(told(n) for n in range(1, MANY)), told(MANY, task_id=77)]
    assert Records(rows=rows, lost=lost).found_by(projected_once)


@pytest.mark.parametrize(
    "records", [Records(seen_after=58), Records(idle=()), Records(idle=[Span(after(9), after(60))])]
)
def test_a_feed_that_is_held_up_is_found(records: Records) -> None:
    """What is saved while a transaction is open elsewhere is seen only after its end; or there was none."""
    assert records.found_by(never_held_up)


def test_lags_are_of_quiet_times() -> None:
    """Before the first fault and some seconds behind the last one, while a transaction is open."""
    sights = [Sight(told(1), after(n), after(n + 0.5)) for n in (-1, 0, 5, 20, 23, 24, 40)]
    spans = [Span(T0, after(30))]
    assert lags(sights, spans, strikes=after(1), calm=after(20)) == [0.5, 0.5]
