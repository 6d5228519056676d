"""Whether writes get through: what a zombie collector must have seen before it calls anybody dead.

Rule: a process that renews its own row in `workers`, again and again and each time committed, has seen that
all others could renew theirs. A gap, a renewal that the server has no more, a clock that was set, and its
evidence begins anew: whatever happened there, it may have happened to the workers too.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from progressor.storage import Beat, Evidence

STARTED = "it has just begun to look"


class Witness:
    """Gathers the evidence of one process; `saw` is called from its heartbeat thread.

    `longest_gap` is how long writes may have been held up unnoticed: half of a lease, so that who renews
    three times a lease has not lost it meanwhile.
    """

    def __init__(self, worker_id: int, *, lease_age: timedelta) -> None:
        self._worker_id = worker_id
        self._longest_gap = lease_age.total_seconds() / 2
        # A clock is set by steps; what it drifts between two renewals is a thousandth of this.
        self._clock_step = lease_age.total_seconds() / 20
        self._lock = threading.Lock()
        self._last: Beat | None = None
        self._because = STARTED
        self._evidence: Evidence | None = None

    @property
    def evidence(self) -> Evidence | None:
        """What was seen up to the last renewal; None before there is any."""
        return self._evidence

    def saw(self, beat: Beat) -> None:
        """This process's row was renewed, and the commit was heard of."""
        with self._lock:
            last, known = self._last, self._evidence
            self._last = beat
            if last is not None and (reason := self._break_between(last, beat)):
                known, self._because = None, reason
            # The commit came later than the time that the row bears: ages count from the commit.
            since = known.since if known else beat.at + timedelta(seconds=beat.done - beat.sent)
            self._evidence = Evidence(self._worker_id, beat.number, since, beat.at, self._because)

    def forget(self, reason: str) -> None:
        """Writes do not get through, somebody else saw: the evidence begins anew with the next renewal."""
        with self._lock:
            self._last = self._evidence = None
            self._because = reason

    def _break_between(self, last: Beat, beat: Beat) -> str | None:
        """Why one renewal is no sign that all went well since the one before it; None if it is."""
        if beat.number <= last.number:
            return "the server has lost its last write"
        # The commit was at some time between sending and hearing of it: the widest and the narrowest.
        most, least = beat.done - last.sent, beat.sent - last.done
        if most > self._longest_gap:
            return f"no write got through for {most:.1f} s"
        step = (beat.at - last.at).total_seconds()
        if not least - self._clock_step <= step <= most + self._clock_step:
            return f"PostgreSQL's clock went {step:.1f} s ahead in {most:.1f} s"
        return None
