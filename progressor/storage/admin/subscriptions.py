"""Subscriptions: readers of the feed whose places are kept, and what they could not deliver.

Rule: a checkpoint moves under the lease of its slice alone. What is parked belongs to the slice too: its
holder adds and removes it, in the transaction of the checkpoint; operators only say what they want.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from progressor.acts import Act, Deed
from progressor.model import FEED_LETTERS
from progressor.storage.admin.audit import Audited
from progressor.storage.feed.places import FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedReads, Slice
from progressor.storage.postgres.arrays import bigints, columns_of, texts, timestamps
from progressor.storage.statements import Params, Results, Row, Transaction

_ACTIONS = {"r": "retry", "s": "skip"}
# Entries of a subscription that are counted.
_MOST_PARKED = 10_000


class SliceKey(NamedTuple):
    """A slice of a subscription, and the lease under which its reader has it."""

    name: str
    slice: Slice
    lease: int


class HeldSlice(NamedTuple):
    """A slice that a reader holds, with its checkpoint, and how often what comes next has failed."""

    key: SliceKey
    place: FeedPlace
    attempts: int


class Parked(NamedTuple):
    """An entry that is put aside, with its position as a text.

    `error` is None of what only waits behind an earlier one of its process.
    """

    entry: FeedEntry
    position: str
    attempts: int
    error: str | None


class ActedOn(NamedTuple):
    """A parked entry that an operator wants tried again, or skipped."""

    parked_no: int
    entry: FeedEntry
    position: str
    is_skipped: bool


class KnownSubscription(NamedTuple):
    """A subscription as operators see it.

    `readers` are the hosts of its live readers. `is_walking`: it reads what was stored before it began.
    `behind` counts rows of the feed that are not done, each of which stands for a transaction; `age` is
    that of the oldest. `is_lost`: the feed has no longer what comes behind its place, so it cannot go on.

    `failing_since`, `attempts` and `error` are of what it tries in vain; None, 0 and None if all is well.
    `parked` counts entries up to 10,000, `parked_processes` the processes of these.
    """

    name: str
    slices: int
    created_at: datetime
    readers: Sequence[str]
    is_walking: bool
    behind: int
    age: timedelta
    is_lost: bool
    failing_since: datetime | None
    attempts: int
    error: str | None
    committed_at: datetime
    parked: int
    parked_processes: int


class ParkedEntry(NamedTuple):
    """An entry of the feed that a subscription has put aside, as operators see it.

    `parked_no` is its number, `name` that of the subscription, `n` the number of an event. `error` is None
    of what waits behind an earlier one of its process; `action` is `retry` or `skip`
    once an operator has asked for it.
    """

    parked_no: int
    name: str
    namespace: str
    process_id: str
    kind: str
    n: int
    task_id: int | None
    timestamp: datetime
    position: str
    parked_at: datetime
    attempts: int
    error: str | None
    action: str | None

    @property
    def what(self) -> str:
        """The number of an event, or what happened."""
        return str(self.n) if self.kind == "event" else self.kind


class Subscriptions(FeedReads, Audited):
    """The operations of durable readers, and of operators on them."""

    async def subscribed(self, name: str, slices: int, place: FeedPlace | None) -> int | None:
        """Return how many slices a subscription has; make it at a place if there is none. None: none."""
        statements: dict[str, Params] = {"subscription_slices_of": {"name": name}}
        if place is not None:
            made = {"name": name, "slices": slices, **place._asdict()}
            statements = {"make_subscription": made, **statements}
        found = await self._transact("subscribed", statements)
        rows = found["subscription_slices_of"]
        return rows[0]["slices"] if rows else None

    async def hold_slices(
        self, name: str, reader_id: int, *, host: str, lease_age: timedelta
    ) -> tuple[int, list[HeldSlice]]:
        """Note that a reader lives; return its share, and the slices that it holds from now on.

        It gets free ones up to its share. (0, []) if the subscription is gone.
        """
        # Drawn at random: a number of a row that was removed, or that a fail-over lost, never comes again.
        lease = secrets.randbits(62)
        params = {
            "name": name,
            "reader_id": reader_id,
            "lease": lease,
            "host": host,
            "lease_age": lease_age,
        }
        statements = {"lock_subscription": params, "hold_slices": params}
        found = await self._transact("hold_slices", statements)
        if not found["lock_subscription"]:
            return 0, []
        (locked,), rows = found["lock_subscription"], found["hold_slices"]
        held = [_held(name, row, locked["slices"]) for row in rows if row["slice"] is not None]
        return rows[0]["share"], held

    async def free_slices(self, name: str, reader_id: int, slices: Sequence[int]) -> None:
        """Give slices back to whoever wants them."""
        await self._rows("free_slices", name=name, reader_id=reader_id, slices=bigints(slices))

    async def leave_subscription(self, name: str, reader_id: int) -> None:
        """Give all slices back, and be no reader any more."""
        params = {"name": name, "reader_id": reader_id, "slices": None}
        statements = {"lock_subscription": params, "free_slices": params, "forget_reader": params}
        await self._transact("leave_subscription", statements)

    async def commit_slice(
        self,
        key: SliceKey,
        place: FeedPlace,
        *,
        known: FeedPlace,
        parks: Sequence[Parked] = (),
        done: Sequence[int] = (),
    ) -> bool:
        """Move the checkpoint of a slice; False if its lease is lost: then nothing is changed.

        So it is if the database has lost what was read, or the checkpoint that is `known` to the reader.
        `parks` are put aside with it; `done` are the numbers of what was parked and need not be any more.
        """
        statements = committing(key, place, known=known, parks=parks, done=done)
        found = await self._transact("commit_slice", statements)
        return bool(found["commit_slice"])

    async def note_failing(self, key: SliceKey, *, attempts: int, error: str) -> bool | None:
        """Note that what comes next in a slice fails; None if its lease is lost.

        Return whether an operator wants it parked.
        """
        rows = await self._rows("note_failing", **_key_columns(key), attempts=attempts, error=error)
        return rows[0]["parks"] if rows else None

    async def fail_parked(self, key: SliceKey, parked_no: int, error: str) -> bool:
        """Note that what was parked has failed again: it waits, with all behind it of its process.

        False if it is not there, or the lease of its slice is lost: then nothing is changed.
        """
        return bool(await self._rows("fail_parked", lease=key.lease, parked_no=parked_no, error=error))

    async def parked_processes(self, key: SliceKey) -> set[tuple[str, str]]:
        """Return the processes of a slice, by namespace and id, of which anything is parked."""
        rows = await self._rows("parked_processes", **_key_columns(key))
        return {(row["namespace"], row["process_id"]) for row in rows}

    async def acted_on(self, key: SliceKey, *, limit: int) -> list[ActedOn]:
        """Return what operators want tried again or skipped, the first of a slice, in order."""
        rows = await self._rows("acted_on", **_key_columns(key), limit=limit)
        return [_acted_on(row) for row in rows]

    async def known_subscriptions(self, name: str | None = None) -> list[KnownSubscription]:
        """Return all subscriptions by name, or one. All that was committed before counts as behind."""
        await self.feed_head()
        rows = await self._rows("known_subscriptions", name=name, most=_MOST_PARKED)
        return [KnownSubscription(**row) for row in rows]

    async def parked_entries(self, name: str | None, *, behind: int, limit: int) -> list[ParkedEntry]:
        """Return parked entries in the order in which they were parked."""
        rows = await self._rows("parked_entries", name=name, behind=behind, limit=limit)
        return [ParkedEntry(**row | _spoken(row)) for row in rows]

    async def act_on_parked(
        self, name: str, parked_no: int | None, *, skip: bool = False, act: Act | None
    ) -> int:
        """Have entries tried again: all of a subscription, or of the process of one; return how many.

        With `skip` that one is left out.
        """

        def deed(found: Results) -> Deed | None:
            (row,) = found["act_on_parked"]
            number = None if parked_no is None else str(parked_no)
            return Deed(row["namespace"], row["process_id"], name, number) if row["many"] else None

        params = {"name": name, "parked_no": parked_no, "skip": skip}
        found = await self._acted("act_on_parked", {"act_on_parked": params}, act, deed)
        many: int = found["act_on_parked"][0]["many"]
        return many

    async def park_failing(self, name: str, *, act: Act | None) -> int:
        """Have what fails in a subscription parked; return in how many slices something does."""

        def deed(found: Results) -> Deed | None:
            return Deed(subject=name) if found["park_failing"][0]["many"] else None

        found = await self._acted("park_failing", {"park_failing": {"name": name}}, act, deed)
        many: int = found["park_failing"][0]["many"]
        return many

    async def move_subscription(self, name: str, place: FeedPlace, *, act: Act | None) -> bool:
        """Let a subscription go on from a place, with nothing parked; False if there is none."""
        params = {"name": name, **place._asdict()}
        statements = {"lock_subscription": params, "move_subscription": params, "drop_parked": params}
        return await self._changed(name, statements, act)

    async def remove_subscription(self, name: str, *, act: Act | None) -> bool:
        """Remove a subscription with its checkpoints and what is parked; False if there is none."""
        params = {"name": name}
        # What is parked goes last: a commit that held a slice until then may have parked something.
        statements = {"lock_subscription": params, "drop_subscription": params, "drop_parked": params}
        return await self._changed(name, statements, act)

    async def _changed(self, name: str, statements: Transaction, act: Act | None) -> bool:
        def deed(found: Results) -> Deed | None:
            return Deed(subject=name) if found["lock_subscription"] else None

        found = await self._acted("change_subscription", statements, act, deed)
        return bool(found["lock_subscription"])


def committing(
    key: SliceKey,
    place: FeedPlace,
    *,
    known: FeedPlace,
    parks: Sequence[Parked] = (),
    done: Sequence[int] = (),
) -> Transaction:
    """Return the statement that moves a checkpoint; it returns no row if the lease is lost."""
    entries = [each.entry for each in parks]
    columns = {
        **columns_of(bigints, entries, "process_no", "n", "task_id", prefix="parked_"),
        **columns_of(texts, entries, "namespace", "process_id", prefix="parked_"),
        **columns_of(timestamps, entries, "timestamp", prefix="parked_"),
        **columns_of(bigints, parks, "attempts", prefix="parked_"),
        **columns_of(texts, parks, "error", prefix="parked_"),
        "parked_kind": texts([entry.letter for entry in entries]),
        "parked_place": texts([each.position for each in parks]),
    }
    before = {f"known_{name}": getattr(known, name) for name in ("position", "item", "n", "walk", "walk_n")}
    places = {**place._asdict(), **before}
    return {"commit_slice": {**_key_columns(key), **places, **columns, "done": bigints(done)}}


def _spoken(row: Row) -> Row:
    action = None if row["action"] is None else _ACTIONS[row["action"]]
    return {"kind": FEED_LETTERS[row["kind"]], "action": action}


def _key_columns(key: SliceKey) -> Params:
    return {"name": key.name, "slice": key.slice.number, "lease": key.lease}


def _held(name: str, row: Row, slices: int) -> HeldSlice:
    place = FeedPlace(*(row[each] for each in FeedPlace._fields))
    return HeldSlice(SliceKey(name, Slice(row["slice"], slices), row["lease"]), place, row["attempts"])


def _acted_on(row: Row) -> ActedOn:
    names = FeedEntry._fields[1:]
    entry = FeedEntry(FeedPlace(0), *(row[each] for each in names))
    return ActedOn(row["parked_no"], entry, row["position"], row["action"] == "s")
