"""Virtual time: sessions and reads whose due times are a clock's, for tests that wait for no time to pass.

Rule: due times are the clock's: when a timer fires, a step begins, an event happened. Leases and heartbeats
stay PostgreSQL's, and so do bulks, which are paced, and tokens: `REAL_TIME` names them. Without a clock
nothing here is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from progressor.storage.postgres.pipeline import Hints, Session, numbered
from progressor.storage.statements import Params, Results, Row, Transaction

_LOOK = "next_timers"

REAL_TIME = frozenset(
    (
        *("lock_bulk", "make_bulk", "next_bulk", "running_bulks", "stop_bulk"),
        *("create_token", "find_tokens", "revoke_token", "use_token"),
    )
)
"""The statements with a parameter `now` that stay on PostgreSQL's clock."""


class WorldLook:
    """The look at the timers of a world, which its commits take beside what they save.

    Only a world works on its database. So what a commit saw holds until a session sends something again: a
    look that comes before that costs no round trip.
    """

    def __init__(self) -> None:
        # The last look; what the last commit saw, if that holds; and what is sent now, and was so far.
        self._asked: Params | None = None
        self._seen: list[Row] | None = None
        self._under_way = self._sent = 0

    def forget(self) -> None:
        """Have the next look ask PostgreSQL."""
        self._asked = self._seen = None

    def known(self, statements: Transaction) -> Results | None:
        """Return the results of a look if they are known, which is told once; None otherwise."""
        if statements.keys() != {_LOOK}:
            return None
        seen, asked = self._seen, self._asked
        self._seen, self._asked = None, statements[_LOOK]
        return None if seen is None or asked != self._asked else {_LOOK: seen}

    def beside(self, statements: Transaction) -> Transaction:
        """Return these statements, with the last look before the commit, if they save something."""
        # A commit alone may be that of a snapshot, which sees nothing new.
        if self._asked is None or len(statements) == 1 or "commit" not in statements:
            return statements
        others = {name: given for name, given in statements.items() if name != "commit"}
        return {**others, _LOOK: self._asked, "commit": {}}

    @contextmanager
    def sending(self) -> Iterator[Callable[[Results], None]]:
        """Send statements within, on any connection; call what it yields with their results."""
        self._sent += 1
        self._under_way += 1
        sent, is_alone, self._seen = self._sent, self._under_way == 1, None

        def saw(results: Results) -> None:
            if is_alone and sent == self._sent:
                self._seen = results.get(_LOOK)

        try:
            yield saw
        finally:
            self._under_way -= 1


class Clock:
    """The clock of a world: `now` is the moment that due times take for now, with a zone."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.look = WorldLook()

    def __call__(self) -> datetime:
        return self.now

    def forget(self) -> None:
        """Have the next look ask PostgreSQL: a test may have written with connections of its own."""
        self.look.forget()


class VirtualSession(Session):
    """A session whose statements take `now` from a clock, whatever their caller has given."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[TupleRow],
        *,
        clock: Clock,
        schema: str,
        keeps_state: bool,
    ) -> None:
        super().__init__(connection, schema=schema, keeps_state=keeps_state)
        self._clock = clock

    async def _send(self, statements: Transaction, hints: Hints | None = None) -> Results:
        look, now = self._clock.look, self._clock.now
        if (known := look.known(statements)) is not None:
            return known
        dated = {name: _at(now, name, given) for name, given in look.beside(statements).items()}
        with look.sending() as saw:
            results = await super()._send(dated, hints)
            saw(results)
        return results


def virtual_sessions(clock: Clock) -> Callable[..., Session]:
    """Return the maker of a pool's sessions that run by this clock."""
    return partial(VirtualSession, clock=clock)


def _at(now: datetime, name: str, given: Params) -> Params:
    names = numbered(name).names
    if "now" in names and name not in REAL_TIME:
        return {**given, "now": now}
    if "ago" in names and given["ago"] is not None:
        # Failures of the last so many hours: those hours are of the clock too.
        return {**given, "since": now - given["ago"], "ago": None}
    return given


def in_virtual_time(clock: Clock) -> Callable[..., tuple[Any, Any, Any]]:
    """Return the listener of SQLAlchemy's `before_execute` that puts the clock's moment for now()."""
    from sqlalchemy import literal  # noqa: PLC0415 - only reads need it, which have imported it
    from sqlalchemy.sql.functions import now as now_function  # noqa: PLC0415 - as above
    from sqlalchemy.sql.visitors import replacement_traverse  # noqa: PLC0415 - as above

    def moment(element: Any, **_options: Any) -> Any:
        return literal(clock()) if isinstance(element, now_function) else None

    def replaced(
        _connection: Any, statement: Any, many: Sequence[Any], params: Any, _options: Any
    ) -> tuple[Any, Any, Any]:
        return replacement_traverse(statement, {}, moment), many, params

    return replaced
