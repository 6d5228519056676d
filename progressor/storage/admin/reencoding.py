"""Values of other keys: read in the order of their rows, and written anew where nobody has changed them.

Rule: a read is bounded and locks nothing. A write locks its processes, but passes over what others hold,
and replaces a value only if it is still the bytes that were read: it may be late by any time. No key is
known here: what is written was encoded outside of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from progressor.acts import Act, Deed
from progressor.storage.admin.audit import noting_all
from progressor.storage.postgres.arrays import bigints, blobs, texts
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.statements import Params, Row


class ValueTable(StrEnum):
    """The tables with values, in the order in which they are written anew.

    Messages and args of bulks become tasks, so they come before these.
    """

    MESSAGES = "messages"
    BULKS = "bulks"
    STATES = "states"
    TASKS = "tasks"
    EVENTS = "events"

    @property
    def is_of_processes(self) -> bool:
        """True if its rows are behind the locks of their processes."""
        return self not in (ValueTable.MESSAGES, ValueTable.BULKS)


class RowKey(NamedTuple):
    """The key of a row with values: the number of its process or bulk, and what else its table has."""

    process_no: int = 0
    id: int = 0
    n: int = 0


class Found(NamedTuple):
    """A value that was looked at: `head` is its first bytes, None of no value.

    `value` is there if it is to be written anew. `ring` is the namespace whose codec it is of; None if that
    is not to be looked at.
    """

    key: RowKey
    ring: str | None
    namespace: str
    process_id: str
    kind: str
    size: int
    head: bytes | None
    value: bytes | None


class Renewal(NamedTuple):
    """A value to be written anew, and the bytes that it replaces. `ring`: whose codec it is of."""

    key: RowKey
    ring: str
    kind: str
    old: bytes
    new: bytes


class ValueLook(NamedTuple):
    """The bounds of one look: rows that are read, and stale values and their bytes.

    Without `writes` no whole values are read.
    """

    writes: bool = True
    reads: int = 2_000
    most: int = 200
    most_bytes: int = 1 << 20
    head: int = 22


class Reencoding(Transactions):
    """The operations on values of other keys."""

    async def stored_values(
        self, table: ValueTable, behind: RowKey, prefixes: Mapping[str, bytes | None], look: ValueLook
    ) -> list[Found]:
        """Return the values of the next rows behind this one; the last row of all has no row behind it.

        A value is stale if it does not begin with the prefix of its namespace; with None none is.
        """
        params = {
            **behind._asdict(),
            **look._asdict(),
            "namespace": texts(list(prefixes)),
            "prefix": blobs(list(prefixes.values())),
        }
        rows = await self._rows(f"stale_{table}", **params)
        return [
            Found(
                _key_of(row),
                row["ring"],
                row["namespace"],
                row["process_id"],
                row["kind"],
                row["bytes"] or 0,
                row["head"],
                row["value"],
            )
            for row in rows
        ]

    async def renew(
        self, table: ValueTable, values: Sequence[Renewal], *, acts: Mapping[str, tuple[Act, Deed]]
    ) -> set[RowKey]:
        """Write these values of one table anew, in the order of their rows; return the rows that were.

        Not among them are rows that others hold, and that have changed since they were read. The acts of
        namespaces that have rows among them are noted.
        """

        async def attempt(session: Session, _again: bool) -> set[RowKey]:
            async with session.transaction():
                wanted = values
                if table.is_of_processes:
                    numbers = bigints(sorted({each.key.process_no for each in values}))
                    found = await session.transact({"lock_swept": {"process_no": numbers}})
                    held = {row["process_no"] for row in found["lock_swept"]}
                    wanted = [each for each in values if each.key.process_no in held]
                if not wanted:
                    return set()
                name = f"renew_{table}"
                done = {_key_of(row) for row in (await session.transact({name: _columns(wanted)}))[name]}
                rings = {each.ring for each in values if each.key in done}
                if noted := [act for ring, act in acts.items() if ring in rings]:
                    await session.transact(noting_all(noted, None))
                return done

        return await self._run("renew", attempt)


def _key_of(row: Row) -> RowKey:
    return RowKey(row["process_no"], row["id"], row["n"])


def _columns(values: Sequence[Renewal]) -> Params:
    rows = [(key, {each.kind: each for each in group}) for key, group in groupby(values, lambda v: v.key)]
    columns: dict[str, bytes | None] = {
        name: bigints([getattr(key, name) for key, _ in rows]) for name in RowKey._fields
    }
    for kind in ("state", "args", "context", "response", "event"):
        columns[kind] = blobs([of[kind].new if kind in of else None for _, of in rows])
        columns[f"old_{kind}"] = blobs([of[kind].old if kind in of else None for _, of in rows])
    return columns
