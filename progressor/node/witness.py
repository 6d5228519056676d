"""The witness: it gathers evidence that writes get through, without which no worker is judged dead.

Rule: a process that renews its own row in `workers`, again and again and each time committed, has seen that
all others could renew theirs. After a gap, a renewal that the server has lost, or a clock that was set, its
evidence begins anew: whatever happened there may have happened to the workers too.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from progressor.storage import Beat, Evidence

STARTED = "it has just begun to look"


class Witness:
    """The evidence of one process; its heartbeat thread calls `saw`.

    Writes may be held up for half a lease unnoticed: a worker, which renews its row three times a lease,
    has not lost its own by then.
    """

    def __init__(self, worker_id: int, *, lease_age: timedelta) -> None:
        self._worker_id = worker_id
        self._longest_gap = lease_age.total_seconds() / 2
        # Seconds; a larger jump means a clock that was set. Drift between two renewals is a thousandth of
        # this.
        self._clock_step = lease_age.total_seconds() / 20
        self._lock = threading.Lock()
        self._last: Beat | None = None
        self._because = STARTED
        self._evidence: Evidence | None = None

    @property
    def evidence(self) -> Evidence | None:
        """The evidence up to the last renewal; None before the first."""
        return self._evidence

    @property
    def server(self) -> str | None:
        """The server that took the last renewal; None before the first."""
        last = self._last
        return None if last is None else last.server

    def saw(self, beat: Beat) -> None:
        """Add a renewal of this process's row, whose commit was acknowledged."""
        with self._lock:
            last, known = self._last, self._evidence
            self._last = beat
            if last is not None and (reason := self._break_between(last, beat)):
                known, self._because = None, reason
            # The commit came later than the row's own time: ages count from the commit.
            since = known.since if known else beat.at + timedelta(seconds=beat.done - beat.sent)
            self._evidence = Evidence(self._worker_id, beat.number, since, beat.at, self._because)

    def forget(self, reason: str) -> None:
        """Drop the evidence, because writes failed elsewhere; it begins anew with the next renewal."""
        with self._lock:
            self._last = self._evidence = None
            self._because = reason

    def _break_between(self, last: Beat, beat: Beat) -> str | None:
        """Return why writes may have failed between two renewals; None if they got through."""
        if beat.number <= last.number:
            return "the server has lost its last write"
        if beat.is_borrowed:
            return "its heartbeat has no connection of its own, and others may have none to borrow"
        # Each commit was between `sent` and `done`: the longest and the shortest time from one to the
        # other.
        most, least = beat.done - last.sent, beat.sent - last.done
        if most > self._longest_gap:
            return f"no write got through for {most:.1f} s"
        step = (beat.at - last.at).total_seconds()
        if not least - self._clock_step <= step <= most + self._clock_step:
            return f"PostgreSQL's clock moved by {step:+.1f} s in {most:.1f} s"
        return None
