"""One connection of the engine's own, driven through libpq's pipeline mode.

Rule: a transaction is one round trip. Its statements leave together and end with one sync: between two
syncs PostgreSQL runs everything in one implicit transaction, and gives each statement a snapshot of its
own. Statements are prepared once per connection; values travel in binary, results come back in binary.

psycopg opens the connection and reads the results; its cursors are left out because they send statement
by statement, and parse a long one again each time: for a lone request that was half of the time.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow
from psycopg.types.json import JsonbBinaryLoader
from psycopg.types.string import TextBinaryLoader

from progressor.config import DEFAULT_SCHEMA
from progressor.storage.postgres.arrays import timestamp
from progressor.storage.postgres.session_setup import BOUNDED_TRANSACTION
from progressor.storage.postgres.sqlstates import Unreadable
from progressor.storage.postgres.watch import SocketWatch, has_ended
from progressor.storage.statements import STATEMENTS, Params, Results, Row, Transaction, in_schema

_PARAMETER = re.compile(r"%\((\w+)\)s")
_BINARY = pq.Format.BINARY
_DONE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
_SYNCED = pq.ExecStatus.PIPELINE_SYNC
_ANY_OTHER = 0
# Empty jsonb, which begins with the number of its format.
_NO_METADATA = b"\1{}"
# What a transaction states first where sessions keep no state, and how it begins there.
_SETTINGS: Transaction = {"settings": BOUNDED_TRANSACTION, "planner": {"is_local": True}}
_OPENING: Transaction = {"begin": {}, **_SETTINGS}
_NOTHING: Transaction = {}


class Hints(NamedTuple):
    """Notifications that leave behind a transaction, in its message and in a transaction of their own.

    They leave once that has ended, whether it was committed or not. `landed` is called once they are on
    their way, with the time.monotonic() at which their turn came, or with None if they may be lost.
    """

    params: Params
    landed: Callable[[float | None], None]


class Numbered(NamedTuple):
    """A statement with `$n` for its parameters: its name, and the names of these in that order."""

    name: bytes
    sql: bytes
    names: tuple[str, ...]
    formats: tuple[int, ...]


@cache
def numbered(name: str, schema: str = DEFAULT_SCHEMA) -> Numbered:
    """Return this statement as it is sent."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    sql = _PARAMETER.sub(number, in_schema(STATEMENTS[name], schema)).encode()
    return Numbered(name.encode(), sql, tuple(names), (_BINARY,) * len(names))


def _interval(value: timedelta) -> bytes:
    # Microseconds, days, months.
    return (value // timedelta(microseconds=1)).to_bytes(8, "big", signed=True) + bytes(8)


# Encoders by the type of a value.
_ENCODERS: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: None,
    str: str.encode,
    bool: lambda value: b"\1" if value else b"\0",
    int: lambda value: value.to_bytes(8, "big", signed=True),
    bytes: lambda value: value,
    datetime: lambda value: timestamp(value).to_bytes(8, "big", signed=True),
    timedelta: _interval,
}


def _encode(value: Any) -> bytes | None:
    try:
        encode = _ENCODERS[type(value)]
    except KeyError:
        encode = _inherited(type(value))
    return encode(value)


def _inherited(kind: type) -> Callable[[Any], bytes | None]:
    # A user's ids may be of a subclass.
    for base in kind.__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    raise TypeError(f"no binary format for {kind.__name__}")


class _JsonLoader(JsonbBinaryLoader):
    """The loader of jsonb.

    It does not parse `{}`, which most metadata is: that would cost more than a small row.
    """

    def load(self, data: Buffer) -> Any:
        return {} if data == _NO_METADATA else super().load(data)


class Session:
    """A connection for one transaction at a time.

    With `keeps_state=False` nothing is prepared, and each transaction begins with the settings it relies
    on.
    """

    prefix = b""
    """The begin of the names of its prepared statements."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[TupleRow],
        *,
        schema: str = DEFAULT_SCHEMA,
        keeps_state: bool = True,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        # A type without a loader is an enum, whose number differs by database: read its label as text.
        connection.adapters.register_loader(_ANY_OTHER, TextBinaryLoader)
        connection.adapters.register_loader("jsonb", _JsonLoader)
        self._transformer = Transformer(connection)
        self._keeps_state = keeps_state
        self._prepared: set[str] = set()
        # False from the first byte that is sent until the sync is read.
        self._is_quiet = True
        self._watch = SocketWatch(self._pgconn)
        # The columns of each statement, which are the same each time.
        self._columns: dict[str, list[str]] = {}

    @property
    def is_idle(self) -> bool:
        """Return whether the connection can take another transaction."""
        return self._is_quiet and self._pgconn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def is_lost(self) -> bool:
        """Return whether the server ended the connection."""
        return self._pgconn.status != pq.ConnStatus.OK

    @property
    def has_ended_at_rest(self) -> bool:
        return not self._watch.is_set and has_ended(self._pgconn)

    async def close(self) -> None:
        self._watch.close()
        await self._connection.close()

    async def transact(self, statements: Transaction, hints: Hints | None = None) -> Results:
        """Run these as one transaction in one round trip; return the rows of each statement."""
        if self._keeps_state or self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return await self._send(statements, hints)
        try:
            return await self._send({**_OPENING, **statements, "commit": {}}, hints)
        except psycopg.Error:
            await self.roll_back()
            raise

    async def _send(self, statements: Transaction, hints: Hints | None = None) -> Results:
        behind: Transaction = {} if hints is None else {"notify": hints.params}
        known = self._prepared
        if self._keeps_state and not (known.issuperset(statements) and known.issuperset(behind)):
            await self._prepare({**statements, **behind})
        self._is_quiet = False
        self._put(statements)
        if hints is not None:
            self._pgconn.pipeline_sync()
            self._put(behind)
        return await self._synced(statements, hints)

    def _put(self, statements: Transaction) -> None:
        """Have these statements sent with the next sync."""
        if not self._keeps_state:
            self._put_whole(statements)
            return
        pgconn, prefix = self._pgconn, self.prefix
        for name, params in statements.items():
            statement, _, names, formats = numbered(name, self._schema)
            values = [_encode(params[each]) for each in names]
            pgconn.send_query_prepared(prefix + statement, values, formats, _BINARY)

    def _put_whole(self, statements: Transaction) -> None:
        """Have the texts of these statements sent with the next sync."""
        for name, params in statements.items():
            _, sql, names, formats = numbered(name, self._schema)
            values = [_encode(params[each]) for each in names]
            self._pgconn.send_query_params(sql, values, None, formats, _BINARY)

    async def begin(self, statements: Transaction) -> Results:
        """Open a transaction with these, in one round trip; `commit` or `roll_back` ends it."""
        opening: Transaction = {"begin": {}} if self._keeps_state else _OPENING
        return await self._send({**opening, **statements})

    async def commit(self, statements: Transaction, hints: Hints | None = None) -> Results:
        """End the open transaction with these, in one round trip."""
        return await self._send({**statements, "commit": {}}, hints)

    async def roll_back(self) -> None:
        """Roll back the open transaction; a connection that ended has rolled back already."""
        if self._is_quiet and not self.is_lost:
            await self._send({"rollback": {}})

    @asynccontextmanager
    async def transaction(self, *, opening: str = "begin") -> AsyncIterator[None]:
        """Open a transaction of several round trips, for rare operations that must look before they act.

        With `opening="begin_snapshot"` it only reads, and all its reads see the same moment.
        """
        await self._send({opening: {}} if self._keeps_state else {opening: {}, **_SETTINGS})
        try:
            yield
        except Exception:
            # Not on a cancellation, which waits for nothing: the connection is closed, and that rolls back.
            await self.roll_back()
            raise
        await self.commit({})

    async def _prepare(self, statements: Transaction, *, behind: Transaction = _NOTHING) -> None:
        """Prepare missing statements in a round trip of its own, behind others that are sent unprepared.

        A statement that fails later then leaves no doubt which ones are prepared, nor does one that cannot
        be prepared: those before it are.
        """
        missing = [name for name in statements if name not in self._prepared]
        self._is_quiet = False
        self._put_whole(behind)
        for name in missing:
            statement, sql, _, _ = numbered(name, self._schema)
            self._pgconn.send_prepare(self.prefix + statement, sql)
        results, failure = await self._sync()
        self._prepared.update(missing[: max(0, len(results) - len(behind))])
        self._is_quiet = True
        if failure is not None:
            raise failure

    async def _synced(self, names: Iterable[str], hints: Hints | None = None) -> Results:
        """Send everything and read until the sync that ends the transaction; return the rows by name."""
        results, failure = await self._sync()
        self._is_quiet = hints is None or await self._land(hints)
        if failure is not None:
            raise failure
        # It is committed by now, even if a value cannot be read.
        return {name: self._rows(name, result) for name, result in zip(names, results, strict=False)}

    async def _sync(self) -> tuple[list[pq.abc.PGresult], psycopg.Error | None]:
        """Send everything, and read as `_read` does."""
        self._pgconn.pipeline_sync()
        await self._flush()
        return await self._read()

    async def _read(self) -> tuple[list[pq.abc.PGresult], psycopg.Error | None]:
        """Read until a sync; return the results, and the first error."""
        pgconn = self._pgconn
        results: list[pq.abc.PGresult] = []
        failure: psycopg.Error | None = None
        while True:
            if pgconn.is_busy():
                try:
                    await self._watch.arrival()
                except psycopg.OperationalError as lost:
                    # The server, or a pooler, has said before why it ends the session.
                    raise failure or lost from None
                continue
            result = pgconn.get_result()
            if result is None:
                # Comes between the results of two statements; after the last one it means a lost server.
                if pgconn.status != pq.ConnStatus.OK:
                    raise failure or psycopg.OperationalError("the connection was lost")
                continue
            status = result.status
            if status in _DONE:
                results.append(result)
            elif status == _SYNCED:
                return results, failure
            elif failure is None:
                failure = error_from_result(result)

    async def _land(self, hints: Hints) -> bool:
        """Read the end of the transaction of hints; return whether it was read to its sync.

        Its failure is not that of the transaction before it.
        """
        began, is_read = time.monotonic(), False
        try:
            _, failure = await self._read()
            is_read = True
        except psycopg.Error as error:
            failure = error
        hints.landed(began if failure is None else None)
        return is_read

    def _rows(self, name: str, result: pq.abc.PGresult) -> list[Row]:
        if not result.ntuples:
            return []
        columns = self._columns.get(name)
        if columns is None:
            named = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
            columns = self._columns[name] = named
        self._transformer.set_pgresult(result)
        try:
            rows = self._transformer.load_rows(0, result.ntuples, tuple)
        except Exception as error:
            # Loaders raise anything: no Python value for it, too deep, too many digits.
            raise Unreadable(name, error) from error
        return [dict(zip(columns, row, strict=True)) for row in rows]

    async def _flush(self) -> None:
        while self._pgconn.flush() == 1:
            # Read and write: the server may stop reading until its own output is read.
            await self._watch.arrival(or_writable=True)
