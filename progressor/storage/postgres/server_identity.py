"""Outages of PostgreSQL in the log: the server, the operation that was tried, and the error.

Rule: everything of one OS process that talks to one database shares one Outage, so that a server that is
away is one line, whatever waits for it. No line has the password of the DSN.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakSet

import psycopg
from psycopg import pq

from progressor import metrics, outages
from progressor.loggers import Logger
from progressor.outages import Outage, OutageLines, cause_of, in_one_line
from progressor.storage.postgres.dsn import parsed

log = Logger("progressor.storage")

_LINES = OutageLines(
    "PostgreSQL not available", "PostgreSQL still not available", "PostgreSQL available again"
)

_WITHOUT_DESCRIPTORS = _LINES._replace(
    begins="no file descriptor left for PostgreSQL", lasts="still no file descriptor left for PostgreSQL"
)


_HELD = OutageLines(
    "locked by another session, what needs it waits",
    "still locked by another session",
    "nothing locked for long any more",
)


_WITHHELD = OutageLines(
    "the role may not do what is asked here",
    "the role still may not do what is asked here",
    "the role may do what is asked here",
)


class Reach(Outage):
    """The outage of a database; its lines differ if this OS process has no descriptor left to reach it.

    A lock that another session keeps is no outage for what was tried alone: all else works. Nor is a right
    that is missing where nothing was ever saved: others may only read there.
    """

    def __init__(self, **where: str) -> None:
        super().__init__(log, _LINES, **where)
        self._held = Outage(log, _HELD, **where)
        self._withheld = Outage(log, _WITHHELD, **where)
        self._has_saved = False

    def withheld(self, cause: str, **fields: object) -> None:
        """Report that the role lacks what a request needs: since it lost that, or has never had it."""
        if self._has_saved:
            self.failed(cause, **fields)
        else:
            self._withheld.failed(cause, **fields)

    def held_back(self, cause: str, **fields: object) -> None:
        """Report that one request or step waits for a lock that another session keeps."""
        self._held.failed(cause, **fields)

    def worked(self, *, in_part: bool = False) -> None:
        super().worked(in_part=in_part)
        self._held.worked()
        if not in_part:
            self._has_saved = True
            self._withheld.worked()

    @property
    def cause(self) -> str | None:
        return super().cause or self._held.cause

    @property
    def held_up(self) -> float:
        return max(super().held_up, self._held.held_up)

    def failed(self, cause: str, **fields: object) -> None:
        if outages.descriptors_are_used_up():
            self._lines = _WITHOUT_DESCRIPTORS
            super().failed(outages.NO_DESCRIPTORS, **fields, descriptors=outages.most_descriptors())
        else:
            self._lines = _LINES
            super().failed(cause, **fields)


def outage_of(dsn: str) -> Reach:
    """Return an outage whose lines name the host, port and database of this DSN."""
    outage = Reach(**place_of(dsn))
    with _LOCK:
        _OUTAGES.add(outage)
    return outage


def longest_outage() -> Outage | None:
    """Return the outage of a database that has lasted longest here; None if there is none. Any thread."""
    with _LOCK:
        found = max(_OUTAGES, key=lambda each: each.seconds, default=None)
    return found if found is not None and found.seconds else None


def _longest_ms() -> float:
    outage = longest_outage()
    return 0.0 if outage is None else outage.seconds * 1000


# The outages of all databases that this OS process talks to.
_OUTAGES: WeakSet[Outage] = WeakSet()
_LOCK = Lock()
metrics.STORAGE_OUTAGE.set_function(_longest_ms)


def place_of(dsn: str) -> dict[str, str]:
    """Return host, port and database of a DSN, the defaults of libpq and its environment included."""
    stated = parsed(dsn)
    defaults = {each.keyword.decode(): (each.val or b"").decode() for each in pq.Conninfo.get_defaults()}

    def value(keyword: str) -> str:
        return str(stated.get(keyword) or defaults.get(keyword, ""))

    return {
        "host": value("host") or value("hostaddr") or "local socket",
        "port": value("port"),
        "database": value("dbname") or value("user"),
    }


def said_by(error: Exception) -> str:
    """Return the error of PostgreSQL or the network in one bounded line.

    Without details, which may hold values.
    """
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return in_one_line(f"{type(error).__name__}: {primary}") if primary else cause_of(error)
