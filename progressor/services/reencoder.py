"""The reencoder: it writes values anew that are not of the active key of their namespace, table by table.

Rule: it remembers no place. What is done begins with the prefix of the active key, so another run finds
what is left by reading it, with nothing to go out of date; and a run that finds nothing is the proof that
an old key can go. Values are decoded and encoded outside of transactions: keys may come from afar.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, assert_never, cast

from progressor.acts import Act, Deed
from progressor.codecs.codec import Owner, ValueKind
from progressor.codecs.envelope import DAMAGED, HEAD, PLAIN, kid_of
from progressor.errors import InvalidRequest
from progressor.handlers.codec import Wire
from progressor.handlers.namespace import Namespace
from progressor.loggers import Logger
from progressor.storage import Found, Renewal, RowKey, Storage, ValueLook, ValueTable

log = Logger("progressor.reencoder")

# So many values that are read count as one that is written, for the rate.
_READS_OF_A_WRITE = 20
# Seconds of lost time that are made up for.
_BURST = 1.0
# Tries at rows that others hold, and the first pause between two; each is twice as long, up to the longest.
_TRIES, _PAUSE, _LONGEST_PAUSE = 12, 0.05, 2.0
# Rows that are passed over, and kept in mind for another try at once.
_MOST_PASSED_OVER = 1_000


@dataclass(slots=True)
class KeyShare:
    """The values of one key (or `plain`, or `damaged`): how many, and of how many bytes."""

    key: str
    values: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Reencoded:
    """The result of a run: what was found, by the key that it had, and what became of it.

    `written`: values and bytes that were written anew; `unreadable`: those that do not decrypt here, by
    key; `left`: rows that others held at each try.
    """

    found: dict[str, KeyShare] = field(default_factory=dict)
    written: KeyShare = field(default_factory=lambda: KeyShare("written"))
    unreadable: dict[str, KeyShare] = field(default_factory=dict)
    left: int = 0
    table: ValueTable | None = None

    @property
    def is_whole(self) -> bool:
        """True if no value is left that is not of the active key of its namespace."""
        return not self.unreadable and not self.left


Progress = Callable[[Reencoded], None]


class Reencoder:
    """A run over the values of namespaces, those of other namespaces of the app apart.

    It writes at most `rate` values a second; None: with no bound. `act` makes the act that the audit notes
    for each namespace of which something is written; None: nothing is noted. InvalidRequest if none of the
    namespaces has a codec with an active key.
    """

    def __init__(
        self,
        storage: Storage,
        namespaces: Sequence[Namespace[Any]],
        *,
        chosen: Sequence[str],
        rate: float | None,
        progress: Progress,
        act: Callable[[], Act] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._storage = storage
        self._wires: Mapping[str, Wire] = {each.name: each.wire for each in namespaces}
        # With None its values are left alone: also those that it gets from a namespace that was chosen.
        self._prefixes = {
            name: wire.active_prefix if name in chosen else None for name, wire in self._wires.items()
        }
        if all(prefix is None for prefix in self._prefixes.values()):
            raise InvalidRequest(
                "none of these namespaces has a codec with an active key, as Keyring has", field="codec"
            )
        # Those that are not noted yet, by namespace.
        self._acts = {} if act is None else {name: (act(), self._deed(name)) for name in chosen}
        self._rate = rate
        # No more at once than a second has room for.
        most = ValueLook().most if rate is None else min(ValueLook().most, math.ceil(rate))
        self._look = ValueLook(most=most)
        self._progress = progress
        self._sleep = sleep
        # When what was done so far is paid for, and what is not yet counted of it.
        self._due, self._work = monotonic(), 0.0
        self.result = Reencoded()
        """What the run has done so far."""

    def _deed(self, name: str) -> Deed:
        return Deed(name, detail=key_of(self._prefixes.get(name) or b""))

    async def run(self) -> Reencoded:
        """Write anew what is not of the active key."""
        for table in ValueTable:
            self.result.table = table
            passed_over: list[RowKey] = []
            async for found in self._looks(table, self._look):
                passed_over += await self._renewed(table, found)
                if len(passed_over) >= _MOST_PASSED_OVER:
                    self.result.left += await self._try_again(table, passed_over)
                    passed_over = []
            self.result.left += await self._try_again(table, passed_over)
        facts = {"values": self.result.written.values, "left": self.result.left}
        log.info("values are written anew", extra=facts)
        return self.result

    async def count(self) -> Reencoded:
        """Count the values by key; write nothing."""
        for table in ValueTable:
            self.result.table = table
            async for _ in self._looks(table, ValueLook(writes=False)):
                pass
        return self.result

    async def _looks(self, table: ValueTable, look: ValueLook) -> AsyncIterator[list[Found]]:
        behind, reads = RowKey(), look.reads
        while found := await self._storage.stored_values(
            table, behind, self._prefixes, look._replace(reads=reads)
        ):
            # Where many are to be written, no more are read than can be.
            reads = look.most if any(each.value is not None for each in found) else look.reads
            self._note(found)
            yield found
            behind = found[-1].key
            self._work += len(found) / _READS_OF_A_WRITE
            self._progress(self.result)
            await self._rest()

    async def _rest(self) -> None:
        """Sleep until what was done is paid for; of time that was lost, a second is made up for."""
        if self._rate is None:
            return
        now = monotonic()
        self._due = max(self._due, now - _BURST) + self._work / self._rate
        self._work = 0.0
        await self._sleep(max(0.0, self._due - now))

    def _note(self, found: Sequence[Found]) -> None:
        for each in found:
            if each.head is not None and self._prefixes.get(each.ring or "") is not None:
                _add(self.result.found, key_of(each.head), each.size)

    async def _renewed(self, table: ValueTable, found: Sequence[Found]) -> list[RowKey]:
        """Write the stale values of these anew; return the rows that others hold or have changed."""
        renewals = [made for each in found if each.value is not None and (made := self._renewal(each))]
        if not renewals:
            return []
        done = await self._storage.renew(table, renewals, acts=self._acts)
        for each in renewals:
            if each.key in done:
                self._acts.pop(each.ring, None)
                self.result.written.values += 1
                self.result.written.bytes += len(each.new)
        self._work += len(renewals)
        return sorted({each.key for each in renewals} - done)

    def _renewal(self, found: Found) -> Renewal | None:
        owner, kind = Owner(found.namespace, found.process_id), cast("ValueKind", found.kind)
        ring, old = found.ring or "", found.value or b""
        wire = self._wires[ring]
        try:
            new = wire.seal(wire.unseal(old, kind, owner), kind, owner)
            return Renewal(found.key, ring, found.kind, old, new)
        except Exception as error:  # noqa: BLE001 - a codec of the user's may raise anything
            _add(self.result.unreadable, key_of(old), found.size)
            facts = {"namespace": found.namespace, "process_id": found.process_id, "kind": found.kind}
            log.warning("value cannot be decoded", extra=facts | {"cause": type(error).__name__})
            return None

    async def _try_again(self, table: ValueTable, rows: Sequence[RowKey]) -> int:
        """Try rows again that were passed over, with longer and longer pauses; return how many are left."""
        pause = _PAUSE
        left = list(rows)
        for _ in range(_TRIES):
            if not left:
                return 0
            await self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            still: list[RowKey] = []
            for key in left:
                before = _before(table, key)
                found = await self._storage.stored_values(table, before, self._prefixes, ValueLook(reads=1))
                # The row may be gone, or of the active key by now.
                still += await self._renewed(table, [each for each in found if each.key == key])
            left = still
        return len(left)


def _before(table: ValueTable, key: RowKey) -> RowKey:
    """Return a key behind which this row is the first."""
    match table:
        case ValueTable.MESSAGES:
            return key._replace(n=key.n - 1)
        case ValueTable.TASKS | ValueTable.EVENTS:
            return key._replace(id=key.id - 1)
        case ValueTable.STATES | ValueTable.BULKS:
            return key._replace(process_no=key.process_no - 1)
        case _:
            assert_never(table)


def key_of(head: bytes) -> str:
    """Return the key id of a value's first bytes, `plain` or `damaged`."""
    try:
        return kid_of(head[:HEAD]) or PLAIN
    except ValueError:
        return DAMAGED


def _add(shares: dict[str, KeyShare], key: str, size: int) -> None:
    share = shares.setdefault(key, KeyShare(key))
    share.values += 1
    share.bytes += size
