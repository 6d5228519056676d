"""The outbox: messages of committed steps, delivered as requests to their targets.

Rule: a message becomes a task of its target and leaves the outbox in one transaction, so nothing is
delivered twice and nothing is lost, wherever a courier dies. Any number of couriers may deliver: each holds
what it takes, and skips what others hold. A step never locks a second process: only this does, after its
commit. A refusal ends a message; a notice to a broken process stands in its trace then, cancelled. One to a
process that is being repaired is tried again, and for a day one to a namespace that nobody serves yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from progressor.errors import InvalidRequest
from progressor.loggers import Logger
from progressor.storage.letters import Letter, key_of, together
from progressor.storage.params import Columns, request_columns
from progressor.storage.postgres.arrays import bigints, microseconds, texts
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.retry import damage_or_lock, one_item
from progressor.storage.postgres.server_identity import said_by
from progressor.storage.postgres.sqlstates import BatchRefused, Blocked
from progressor.storage.postgres.transactions import Transactions
from progressor.storage.rows import is_gone, prepared_of, started_of
from progressor.storage.statements import Params, Results, Row, Transaction, lock_by_name
from progressor.storage.values import NotPrepared, Prepared, Reason, Request

log = Logger("progressor.storage.outbox")

# Messages, and bytes of their arguments, that are delivered at once.
MOST = 128
_MOST_BYTES = 32 << 20
# Messages up to which those that wait are counted.
_MOST_COUNTED = 1000
# No lock of a target is waited for much longer than a step holds it: messages to others must not wait for
# one that somebody keeps locked. That one is tried again later.
_BRIEFLY: Transaction = {"wait_briefly": {"lock_timeout": "500ms"}}
# Between two tries of a message: the first pause, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)
_DOUBLINGS = 10
# The pauses of a day. Its age says nothing: while no courier lives, a message is not tried.
_MOST_PAUSES = 296


WakesBehind = Callable[[Collection[str]], tuple[Hints | None, Collection[str]]]
"""A function that returns the hints that wake workers of these namespaces, and those that are hinted."""


def wakes_nobody(_namespaces: Collection[str]) -> tuple[None, tuple[()]]:
    """Return no hints."""
    return None, ()


class RefusedMessage(NamedTuple):
    """A message that was ended without a delivery: its sender, its target, and the reason.

    The names of the sender are None if it is gone.
    """

    sender_namespace: str | None
    sender_id: str | None
    sender_no: int
    task_id: int
    namespace: str
    process_id: str
    name: str | None
    reason: str

    @property
    def fields(self) -> dict[str, object]:
        """The fields of a line of the log: those of a step, and the target."""
        return {
            "namespace": self.sender_namespace,
            "process_id": self.sender_id,
            "process_no": self.sender_no,
            "task_id": self.task_id,
            "target_namespace": self.namespace,
            "target_id": self.process_id,
            "call": self.name,
            "reason": self.reason,
        }


class Delivery(NamedTuple):
    """The result of a flight: how many messages were delivered in each namespace, and what was refused.

    `namespaces` are those where tasks may wait now, `woken` those of them that have had a hint; `more`:
    there may be more to deliver.
    """

    delivered: Counter[str]
    refused: tuple[RefusedMessage, ...] = ()
    namespaces: tuple[str, ...] = ()
    more: bool = False
    woken: Collection[str] = ()


class WaitingMessages(NamedTuple):
    """The messages in the outbox, counted up to 1,000; the age of the oldest, and when the next is due.

    `due_in` is None if each that was counted waits for an earlier one.
    """

    messages: int
    age: timedelta | None
    due_in: timedelta | None

    @property
    def hide_others(self) -> bool:
        """Return whether there may be messages that were not looked at."""
        return self.messages == _MOST_COUNTED


class UndeliveredMessage(NamedTuple):
    """A message that stands in the outbox: its step, its target, and when it is tried next.

    `name` is that of the call, None for a start; `attempts` is how often it was put off.
    """

    task_id: int
    n: int
    task_type: str
    namespace: str
    process_id: str
    name: str | None
    created_at: datetime
    due: datetime
    attempts: int


class Outbox(Transactions):
    """The operations on the outbox; steps append to it as they are saved."""

    async def waiting(self, *, now: datetime | None = None) -> WaitingMessages:
        """Look at the messages that wait."""
        (row,) = await self._rows("waiting_messages", most=_MOST_COUNTED, now=now)
        return WaitingMessages(**row)

    async def undelivered(self, process_no: int, *, limit: int) -> list[UndeliveredMessage]:
        """Return up to `limit` messages of a process that are not delivered yet, the oldest first."""
        rows = await self._rows("messages_of", process_no=process_no, limit=limit)
        return [UndeliveredMessage(**row) for row in rows]

    async def deliver(
        self, *, limit: int = MOST, wakes: WakesBehind = wakes_nobody, now: datetime | None = None
    ) -> Delivery:
        """Deliver up to `limit` messages that are due, those that waited longest first.

        `wakes` returns the hints to their namespaces, which leave behind the delivering transaction.
        If PostgreSQL refuses them together, they are delivered one by one; one that it refuses alone is
        tried again later, for a day, or for as long as somebody keeps its target locked.
        """
        try:
            return await self._sent(limit, wakes, now, [], locked=())
        except (BatchRefused, InvalidRequest):
            return await self._one_by_one(limit, now)

    async def _sent(
        self,
        limit: int,
        wakes: WakesBehind,
        now: datetime | None,
        held: list[Row],
        *,
        locked: Collection[tuple[str, str]],
    ) -> Delivery:
        """Deliver messages in one transaction; `held` gets those that it took, also if it is refused.

        Blocked, without a wait, if it takes one to a target that is known to be locked.
        """
        # The namespaces of all tries: one whose answer was lost may have delivered what it took.
        taken: dict[str, None] = {}

        async def attempt(session: Session, _again: bool) -> tuple[list[Letter], Results, Delivery]:
            params = {"limit": limit, "bytes": _MOST_BYTES, "now": now}
            try:
                held.clear()
                rows = (await session.begin({"take_messages": params}))["take_messages"]
                held.extend(rows)
                _refuse_locked(rows, locked)
                letters = together(rows)
                taken.update(dict.fromkeys(each.request.namespace for each in letters))
                hints, woken = wakes(taken)
                results = await session.commit({**_BRIEFLY, **_delivering(letters, now)}, hints)
            except Exception:
                # Not on a cancellation, which waits for nothing: the connection is closed.
                await session.roll_back()
                raise
            more = len(rows) == limit or len(letters) < len(rows)
            return letters, results, Delivery(Counter(), more=more, woken=woken)

        apart = damage_or_lock if limit == 1 else one_item
        letters, results, sent = await self._run("deliver", attempt, apart=apart)
        refused = await self._settle(letters, results, sent.delivered, now)
        return sent._replace(refused=refused, namespaces=tuple(taken))

    async def _settle(
        self, letters: Sequence[Letter], results: Results, delivered: Counter[str], now: datetime | None
    ) -> tuple[RefusedMessage, ...]:
        """Count what was delivered; end what was refused or leave it for later, and return what ended."""
        dropped = {key_of(row) for row in results.get("drop_messages", ())}
        left: list[tuple[Row, timedelta | None]] = []
        reasons: dict[tuple[int, int, int], str] = {}
        put_off: set[tuple[int, str, str]] = set()
        reached = {each.line for each in letters if each.key in dropped and not each.is_start}
        for letter, found in zip(letters, await self._outcomes(letters, results), strict=True):
            # What was in the way of a start was still there for what came behind it.
            was_there = found is None and letter.line in reached
            outcome = NotPrepared(Reason.EXISTS) if was_there else found
            delay = _delay(letter.row, outcome)
            if isinstance(outcome, NotPrepared):
                if delay is None and letter.line in put_off:
                    # What it was sent behind comes first, and may be what it needs there.
                    continue
                reasons[letter.key] = outcome.reason.value
            elif outcome is not None:
                delivered[letter.request.namespace] += 1
            if letter.key not in dropped:
                left.append((letter.row, delay))
                if delay is not None:
                    put_off.add(letter.line)
        ended = dropped | await self._left(left, now)
        return tuple(
            _refused(letter.row, reasons[letter.key])
            for letter in letters
            if letter.key in ended and letter.key in reasons
        )

    async def _outcomes(self, letters: Sequence[Letter], results: Results) -> list[Prepared | None]:
        """Return what became of each: None if it must be tried again."""
        starts = [each.request for each in letters if each.is_start]
        started: list[Prepared | None] = [None] * len(starts)
        for row in results.get("prepare_init", ()):
            started[row["ord"] - 1] = started_of(starts[row["ord"] - 1], row)
        missing = [place for place, outcome in enumerate(started) if outcome is None]
        if missing:
            others = [starts[place] for place in missing]
            found = await self._rows("started", **request_columns(others))
            for place, request, row in zip(missing, others, found, strict=True):
                # What was in the way of a start may be gone by now.
                started[place] = None if is_gone(row) else prepared_of(request, row)
        inits, calls = iter(started), iter(results.get("prepare_call", ()))
        outcomes = [
            next(inits) if each.is_start else prepared_of(each.request, next(calls)) for each in letters
        ]
        return [
            await self._unserved(each.request, outcome)
            for each, outcome in zip(letters, outcomes, strict=True)
        ]

    async def _unserved(self, request: Request, outcome: Prepared | None) -> Prepared | None:
        """Return the outcome; a process that is not found is of a namespace that is not known, perhaps."""
        if outcome != NotPrepared(Reason.NOT_FOUND):
            return outcome
        is_known = await self._rows("namespace", name=request.namespace)
        return outcome if is_known else NotPrepared(Reason.NO_NAMESPACE)

    async def _left(
        self, left: Sequence[tuple[Row, timedelta | None]], now: datetime | None
    ) -> set[tuple[int, int, int]]:
        """End these messages, or put them off; return the keys of those that were ended here."""
        if not left:
            return set()
        delays = [None if delay is None else microseconds(delay) for _, delay in left]
        rows = [row for row, _ in left]
        keys = {**_key_columns(rows), "idempotency_key": texts([row["idempotency_key"] for row in rows])}
        params = {**keys, "delay": bigints(delays), "now": now}
        return {key_of(row) for row in await self._rows("settle_messages", **params)}

    async def _one_by_one(self, most: int, now: datetime | None) -> Delivery:
        total = Delivery(Counter())
        locked: set[tuple[str, str]] = set()
        for _ in range(most):
            held: list[Row] = []
            try:
                one = await self._sent(1, wakes_nobody, now, held, locked=locked)
            except (BatchRefused, InvalidRequest) as error:
                if isinstance(error, Blocked):
                    # Other messages to it do not wait for the same lock, each in its turn.
                    locked.update(map(_target_of, held))
                one = await self._put_off(error, held, now)
            total = Delivery(
                total.delivered + one.delivered,
                total.refused + one.refused,
                tuple(dict.fromkeys(total.namespaces + one.namespaces)),
                one.more,
            )
            if not one.more:
                break
        return total

    async def _put_off(self, error: Exception, held: Sequence[Row], now: datetime | None) -> Delivery:
        """Put off the message that PostgreSQL refused alone; after a day of tries, end it.

        One whose target somebody keeps locked is never ended. One that could not even be taken is looked
        for without its values.
        """
        rows = held or await self._rows("next_message", now=now)
        if not rows:
            return Delivery(Counter())
        (row,) = rows
        delay = _pause(row) if isinstance(error, Blocked) else _pause_of_a_day(row)
        about = _refused(row, said_by(error))
        if delay is not None:
            log.warning("message cannot be delivered, it is tried again", extra=about.fields)
        ended = await self._left([(row, delay)], now)
        return Delivery(Counter(), (about,) if ended else (), more=True)


def _delivering(letters: Sequence[Letter], now: datetime | None) -> dict[str, Params]:
    """Return the statements that make tasks of messages, and drop these from the outbox."""
    delivering: dict[str, Params] = {}
    starts = [each.request for each in letters if each.is_start]
    notices = [each.request for each in letters if not each.is_start]
    if starts:
        params = {**request_columns(starts), "now": now}
        delivering |= {"prepare_init": params, "one_life": params}
    if notices:
        params = {**request_columns(notices), "now": now}
        verbs = (lock_by_name(len(notices)), "prepare_call", "cancel_messages")
        delivering |= dict.fromkeys(verbs, params)
    if letters:
        columns = request_columns([each.request for each in letters])
        delivering["drop_messages"] = {**columns, **_key_columns([each.row for each in letters])}
    return delivering


def _refuse_locked(rows: Sequence[Row], locked: Collection[tuple[str, str]]) -> None:
    if any(_target_of(row) in locked for row in rows):
        raise Blocked("its target was locked just now")


def _target_of(row: Row) -> tuple[str, str]:
    return row["namespace"], row["process_id"]


def _key_columns(rows: Sequence[Row]) -> Columns:
    return {
        "sender_no": bigints([row["process_no"] for row in rows]),
        "sent_by": bigints([row["task_id"] for row in rows]),
        "n": bigints([row["n"] for row in rows]),
    }


def _delay(row: Row, outcome: Prepared | None) -> timedelta | None:
    """Return when a message that has not left the outbox is tried again; None if it is ended."""
    if outcome is None:
        return _pause(row)
    if outcome == NotPrepared(Reason.NO_NAMESPACE):
        return _pause_of_a_day(row)
    if isinstance(outcome, NotPrepared) and outcome.reason is Reason.BROKEN:
        # Its target is being repaired: otherwise it was dropped, with a task.
        return _pause(row)
    return None


def _pause(row: Row) -> timedelta:
    pause: timedelta = _FIRST_PAUSE * 2 ** min(row["attempts"], _DOUBLINGS)
    return min(pause, _LONGEST_PAUSE)


def _pause_of_a_day(row: Row) -> timedelta | None:
    """Return the pause before the next try; None if a message was tried for a day."""
    return _pause(row) if row["attempts"] < _MOST_PAUSES else None


def _refused(row: Row, reason: str) -> RefusedMessage:
    return RefusedMessage(
        row["sender_namespace"],
        row["sender_id"],
        row["process_no"],
        row["task_id"],
        row["namespace"],
        row["process_id"],
        row["name"],
        reason,
    )
