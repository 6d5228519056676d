"""Outages as the log has them: how they begin, last and end.

Rule: nobody has to count lines. However many operations fail and however often each is tried, an outage is
a line at its beginning, one every half minute while it lasts, and one at its end, each with its cause or
its length.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import NamedTuple

from progressor.loggers import Logger

# In seconds: how often an outage that lasts is said; how long nothing fails before it is over, because
# some of what is tried may work while the rest does not.
_AGAIN, _CALM = 30.0, 5.0
# Where nothing has failed for so long nobody tries, and whether it lasts is not known. A try takes less.
_FORGOTTEN = 60.0
_LONGEST_CAUSE = 300


class Says(NamedTuple):
    """The messages of one kind of outage; constant, as all messages are."""

    begins: str
    lasts: str
    over: str


class Outage:
    """Something that should work and at times does not; any thread may say how it went."""

    def __init__(self, log: Logger, says: Says, **where: object) -> None:
        self._log = log
        self._says = says
        self._where = where
        self._lock = Lock()
        # By the clock of durations: since when it lasts, if it does; the last failure, the first success
        # after it, and the last line.
        self._since: float | None = None
        self._failed_at = 0.0
        self._worked_at: float | None = None
        self._said_at = 0.0
        self._cause = ""

    def failed(self, cause: str, **fields: object) -> None:
        """It did not work."""
        now = time.monotonic()
        with self._lock:
            begins = self._since is None
            since = self._since = now if self._since is None else self._since
            self._failed_at, self._worked_at, self._cause = now, None, cause
            if not begins and now - self._said_at < _AGAIN:
                return
            self._said_at = now
        facts = {**self._where, **fields, "cause": cause}
        if begins:
            self._log.warning(self._says.begins, extra=facts)
        else:
            self._log.warning(self._says.lasts, extra={**facts, "seconds": round(now - since, 1)})

    def worked(self) -> None:
        """It worked; where nothing failed lately, this costs nothing."""
        if self._since is None:
            return
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                return
            if self._worked_at is None:
                self._worked_at = now
            if now - self._failed_at < _CALM:
                return
            lasted, self._since = self._worked_at - self._since, None
        self._log.info(self._says.over, extra={**self._where, "seconds": round(lasted, 1)})

    @property
    def seconds(self) -> float:
        """For how long it has lasted by now; 0 if there is none."""
        with self._lock:
            now = time.monotonic()
            if self._since is None or self._worked_at is not None or now - self._failed_at > _FORGOTTEN:
                return 0.0
            return now - self._since

    @property
    def cause(self) -> str | None:
        """The cause of the last failure, while it lasts."""
        return self._cause if self.seconds else None

    @property
    def held_up(self) -> float:
        """For how many seconds something has failed at times, until it is over; from any thread."""
        with self._lock:
            now = time.monotonic()
            if self._since is None or now - self._failed_at > _FORGOTTEN:
                return 0.0
            return now - self._since


def cause_of(error: BaseException) -> str:
    """An error's type and text in one bounded line."""
    text, name = str(error), type(error).__name__
    return in_one_line(f"{name}: {text}" if text else name)


def in_one_line(text: str) -> str:
    """A text that is fit for a line of a log, without line ends and bounded."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"
