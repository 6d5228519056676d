"""The witness: what a process has seen of its own writes, and from when on it is evidence."""

from __future__ import annotations

from datetime import timedelta

import pytest

from progressor.node.witness import STARTED, Witness
from progressor.storage.values import Beat
from tests.support import SECOND, T0, WORKER

LEASE = 15 * SECOND


class Life:
    """A process that beats: its own clock, PostgreSQL's, and the count in its row go on together."""

    def __init__(self) -> None:
        self.witness = Witness(WORKER, lease_age=LEASE)
        self.time = 1000.0
        self.clock = T0
        self.number = 0

    def passes(self, seconds: float) -> None:
        self.time += seconds
        self.clock += timedelta(seconds=seconds)

    def beat(self, *, held_up: float = 0.0) -> None:
        """Renew the row; its commit may be held up after PostgreSQL has looked at its clock."""
        self.number += 1
        sent, at = self.time, self.clock
        self.passes(held_up)
        self.witness.saw(Beat(self.number, at, sent, self.time))

    def beats(self, seconds: int) -> None:
        """Every three seconds, for so long."""
        for _ in range(seconds // 3):
            self.passes(3)
            self.beat()

    @property
    def seen(self) -> timedelta | None:
        """For how long writes got through, as far as it knows."""
        evidence = self.witness.evidence
        return evidence and evidence.at - evidence.since

    @property
    def because(self) -> str:
        evidence = self.witness.evidence
        assert evidence is not None
        return evidence.because


@pytest.fixture
def life() -> Life:
    """One that has beaten for a lease."""
    life = Life()
    life.beat()
    life.beats(15)
    return life


def test_nothing_seen_yet() -> None:
    """Before the first write there is no evidence, and the first one is evidence of no time at all."""
    life = Life()
    assert life.witness.evidence is None
    life.beat()
    assert (life.seen, life.because) == (timedelta(0), STARTED)


def test_it_grows_with_every_write(life: Life) -> None:
    """It says since when, until when, and which write was the last."""
    evidence = life.witness.evidence
    assert evidence is not None
    assert (evidence.since, evidence.at) == (T0, T0 + 15 * SECOND)
    assert (evidence.worker_id, evidence.beats) == (WORKER, 6)
    assert evidence.covers(LEASE)
    assert not evidence.covers(LEASE + timedelta(microseconds=1))


def test_a_gap(life: Life) -> None:
    """Writes that were held up for half a lease could have been everybody's: it begins anew."""
    life.passes(7.5)
    life.beat()
    assert life.seen == 22.5 * SECOND
    life.passes(7.6)
    life.beat()
    assert (life.seen, life.because) == (timedelta(0), "no write got through for 7.6 s")
    life.beats(15)
    assert life.seen == LEASE


def test_a_commit_that_hangs(life: Life) -> None:
    """The time of a hanging commit is part of the gap, and ages count from its end, not from its begin."""
    life.passes(3)
    life.beat(held_up=25)
    assert (life.seen, life.because) == (-25 * SECOND, "no write got through for 28.0 s")
    life.beats(15)
    assert life.seen == LEASE - 3 * SECOND


def test_slow_commits_in_a_row(life: Life) -> None:
    """Each counts from the sending of the one before it: between two, nobody knows."""
    life.passes(1)
    life.beat(held_up=4)
    life.passes(1)
    life.beat(held_up=4)
    assert life.because == "no write got through for 9.0 s"


def test_a_server_that_lost_a_write(life: Life) -> None:
    """The promoted standby that had not got the last write may lack those of others too."""
    life.number -= 1
    life.beats(3)
    assert (life.seen, life.because) == (timedelta(0), "the server has lost its last write")


def test_a_row_that_was_dropped(life: Life) -> None:
    """A row that had to be made anew is no sign of what was before."""
    life.number = 0
    life.beats(3)
    assert life.because == "the server has lost its last write"


def test_a_write_of_which_nobody_heard(life: Life) -> None:
    """A renewal whose answer was lost counts in the row, and is no gap."""
    life.number += 1
    life.beats(3)
    assert life.seen == 18 * SECOND


@pytest.mark.parametrize("seconds", [-3600, -2, 2, 3600])
def test_a_clock_that_was_set(life: Life, seconds: float) -> None:
    """Ages are differences of PostgreSQL's clock: when it is set, they begin anew, by the new time."""
    life.clock += timedelta(seconds=seconds)
    life.beats(3)
    assert life.seen == timedelta(0)
    assert life.because == f"PostgreSQL's clock moved by {3 + seconds:+.1f} s in 3.0 s"
    life.beats(15)
    assert life.seen == LEASE


def test_a_clock_that_is_not_quite_right(life: Life) -> None:
    """Clocks drift, and a write is somewhere between its sending and its answer: neither is a step."""
    for milliseconds in (50, -50):
        life.clock += timedelta(milliseconds=milliseconds)
        life.passes(3)
        life.beat(held_up=2)
    assert life.because == STARTED


def test_a_machine_that_slept(life: Life) -> None:
    """Its own clock stood still meanwhile, PostgreSQL's did not."""
    life.clock += timedelta(hours=1)
    life.beats(3)
    assert life.seen == timedelta(0)


def test_somebody_else_saw_that_writes_are_held_up(life: Life) -> None:
    """Then it begins anew with the next write."""
    life.witness.forget("a table is locked")
    assert life.witness.evidence is None
    life.beats(3)
    assert (life.seen, life.because) == (timedelta(0), "a table is locked")
