"""Outages in the log, and the lack of file descriptors, which looks like an outage.

Rule: the lines do not grow with the failures. However many operations fail and however often each is tried,
an outage has a line at its beginning, one every half minute while it lasts, and one at its end, each with
its cause or its length.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import time
from threading import Lock
from typing import NamedTuple

from progressor.loggers import Logger

# Seconds: between two lines of an outage that lasts; and without a failure until it is over, because some
# operations may work while others still fail, or wait for a lock for ten seconds.
_AGAIN, _CALM = 30.0, 15.0
# Seconds; longer than any try takes. If nothing has failed for so long, nobody tries any more, and nobody
# knows whether the outage lasts.
_FORGOTTEN = 60.0
# Seconds in which successes are weighed against failures: on a full disk one in a hundred finds some room.
# In twice these seconds so many failures may be of one thing that is tried again beside what works.
_WEIGHED, _OF_ONE = 10.0, 40
_LONGEST_CAUSE = 300

NO_DESCRIPTORS = "this OS process has no file descriptor left: raise its limit (LimitNOFILE, ulimit -n)"
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class OutageLines(NamedTuple):
    """The messages of one kind of outage; constant, as all messages are."""

    begins: str
    lasts: str
    over: str


class Outage:
    """The outages of one thing that should work; any thread may report `failed` or `worked`."""

    def __init__(self, log: Logger, lines: OutageLines, **where: object) -> None:
        self._log = log
        self._lines = lines
        self._where = where
        self._lock = Lock()
        # Times of `time.monotonic`: the beginning of the present outage, if there is one; its last failure,
        # the first success after that, and its last line.
        self._since: float | None = None
        self._failed_at = 0.0
        self._worked_at: float | None = None
        # True if something fails beside what works; and when a success last showed that most works.
        self._is_partial = False
        self._proved_at = 0.0
        self._weighed_since = 0.0
        # Of the seconds that are weighed now, and of those before.
        self._failures, self._successes = [0, 0], [0, 0]
        self._logged_at = 0.0
        self._cause = ""

    def failed(self, cause: str, **fields: object) -> None:
        """Report a failure: log if an outage begins, or has lasted half a minute since its last line."""
        now = time.monotonic()
        with self._lock:
            # One that nobody noticed for long was another.
            begins = self._since is None or now - self._failed_at > _FORGOTTEN
            since = self._since = now if self._since is None or begins else self._since
            self._is_partial = not begins and (self._is_partial or self._worked_at is not None)
            self._failed_at, self._worked_at, self._cause = now, None, cause
            self._weigh(now)
            self._failures[0] += 1
            if not begins and now - self._logged_at < _AGAIN:
                return
            self._logged_at = now
        facts = {**self._where, **fields, "cause": cause}
        if begins:
            self._log.warning(self._lines.begins, extra=facts)
        else:
            self._log.warning(self._lines.lasts, extra={**facts, "seconds": round(now - since, 1)})

    def worked(self, *, in_part: bool = False) -> None:
        """Report a success: log if the outage is over by it. Costs nothing if there is none.

        `in_part`: what else fails may still fail.
        """
        if self._since is None:
            return
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                return
            if self._worked_at is None:
                self._worked_at = now
                if not self._is_partial:
                    # Nothing worked until now: that weighs nothing against what works from here on.
                    self._failures, self._successes = [0, 0], [0, 0]
            if not in_part:
                self._weigh(now)
                self._successes[0] += 1
                if sum(self._failures) <= max(_OF_ONE, sum(self._successes)):
                    self._is_partial, self._proved_at = False, now
            if now - self._failed_at < _CALM:
                return
            lasted, self._since = self._worked_at - self._since, None
        self._log.info(self._lines.over, extra={**self._where, "seconds": round(lasted, 1)})

    def _weigh(self, now: float) -> None:
        """Forget what was long ago."""
        if (since := now - self._weighed_since) > _WEIGHED:
            self._weighed_since = now
            for counts in (self._failures, self._successes):
                counts[:] = [0, counts[0] if since <= 2 * _WEIGHED else 0]

    @property
    def seconds(self) -> float:
        """The seconds that the outage has lasted, or in which most of what was tried failed.

        0 if there is none, or all works again.
        """
        with self._lock:
            now = time.monotonic()
            fails = self._worked_at is None or (self._is_partial and now - self._failed_at < _CALM)
            return min(self._lasts(now), now - self._proved_at) if fails else 0.0

    @property
    def cause(self) -> str | None:
        """The cause of the last failure, while the outage lasts."""
        return self._cause if self.seconds else None

    @property
    def is_partial(self) -> bool:
        """True while something works and other things fail."""
        return self._is_partial and self.seconds > 0

    @property
    def held_up(self) -> float:
        """The seconds since the outage began, though something may work; 0 once it is over. Any thread."""
        with self._lock:
            return self._lasts(time.monotonic())

    def _lasts(self, now: float) -> float:
        if self._since is None or now - self._failed_at > _FORGOTTEN:
            return 0.0
        return now - self._since


def cause_of(error: BaseException) -> str:
    """Return an error's type and text in one bounded line."""
    text, name = str(error), type(error).__name__
    return in_one_line(f"{name}: {text}" if text else name)


def in_one_line(text: str) -> str:
    """Return a text for a line of the log, or a column: without line ends, at most 300 characters.

    PostgreSQL can store it: it has no NUL characters and no lone surrogates.
    """
    text = " ".join(text.split()).replace("\x00", "\N{REPLACEMENT CHARACTER}")
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"


def most_descriptors() -> int:
    """Return the number of file descriptors that this OS process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def descriptors_are_used_up() -> bool:
    """Return whether the OS refuses another descriptor just now, to this process or to all."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _NO_DESCRIPTOR
    return False
