"""Virtual time: sessions and reads whose due times are a clock's, for tests that wait for no time to pass.

Rule: due times are the clock's: when a timer fires, a step begins, an event happened. Leases and heartbeats
stay PostgreSQL's, and so do bulks, which are paced, and tokens: `REAL_TIME` names them. Without a clock
nothing here is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from progressor.storage.postgres.pipeline import Hints, Session, numbered
from progressor.storage.statements import Params, Results, Transaction

Clock = Callable[[], datetime]
"""A function that returns the moment that due times take for now, with a zone."""

REAL_TIME = frozenset(
    (
        *("lock_bulk", "make_bulk", "next_bulk", "running_bulks", "stop_bulk"),
        *("create_token", "find_tokens", "revoke_token", "use_token"),
    )
)
"""The statements with a parameter `now` that stay on PostgreSQL's clock."""


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
        now = self._clock()
        dated = {name: _at(now, name, given) for name, given in statements.items()}
        return await super()._send(dated, hints)


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
