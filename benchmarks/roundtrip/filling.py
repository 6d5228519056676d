"""Subscriptions made through the public API, with all that an export has; then the source is paused.

Rule: what a client got as an answer under a key is kept for some of them, to be asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple

import psycopg

from benchmarks.roundtrip.service import (
    BREAKING,
    KINDS,
    NAMESPACE,
    UNPAYABLE,
    Kind,
    Opening,
    Pay,
    Wish,
    kind_of,
    name_of,
)
from progressor import Client, ProgressorError

_AT_ONCE = 256
_FAR, _HELD = timedelta(days=40), timedelta(seconds=8)
# Its multiples, without their whole parts, lie evenly between 0 and 1.
_GOLDEN = 0.6180339887498949
# Of so many processes, beside a block of each kind, each answer is kept.
_KEPT_OF = 2000
# Values that some reader of JSON might change: they are to come back as they were.
_NOTES: tuple[Any, ...] = (
    None,
    {"base64": "none"},
    {"none": None, "empty": [], "deep": [{"a": [1, 2.5, -0.0, 1e300, 10**30]}]},
    'a text of \\u0000, \u2028, \U0001f600 and "quotes"\n\ttabs',
    [True, False, 0, 1, 1.0, "1", 2**63, -(2**63), 0.1, 123456789.123456789],
    "x" * 900,
)
_PLAIN_BYTES = b'{ "amount" : 4,\n "note": 1E2 }'
_COUNT_BROKEN: LiteralString = """
SELECT count(*) FROM progressor.v_processes WHERE namespace = %s AND detail IS NOT NULL
"""
_NAMES: LiteralString = """
SELECT process_id FROM progressor.v_processes WHERE namespace = %s
"""


class Asked(NamedTuple):
    """A request that was answered, to be repeated with its key; of a start the name is None."""

    process_id: str
    name: str | None
    args: Any
    key: str
    answer: Any


class Filling:
    """One filling: a few steps of each subscription, of many subscriptions at once."""

    def __init__(self, client: Client, dsn: str, *, processes: int) -> None:
        self._client = client
        self._database = psycopg.connect(dsn, autocommit=True)
        self._numbers = range(processes)
        self._began = datetime.now(UTC)
        self.answers: list[Asked] = []

    async def run(self) -> int:
        """Make them all, and pause the source; return how many there are then."""
        try:
            await self._each(self._numbers, self._open)
            await self._until_broken()
            await self._set_those_due_soon()
            await self._client.pause(NAMESPACE, "moves")
            await self._each((n for n in self._numbers if kind_of(n).name == "waiting"), self._wait)
            # On a slow machine a timer may have removed some of them before the pause.
            left = {name for (name,) in self._database.execute(_NAMES, [NAMESPACE])}
            self.answers = [each for each in self.answers if each.process_id in left]
            return len(left)
        finally:
            self._database.close()

    async def _each(self, numbers: Iterable[int], act: Callable[[int], Awaitable[None]]) -> None:
        """Do this with each number, with many of them at once."""
        left = iter(numbers)

        async def walk() -> None:
            for number in left:
                await act(number)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(walk())

    async def _set_those_due_soon(self) -> None:
        """Set the timers that fire on the other side, each at a time of its own.

        However long the transfer takes: some pass before it is done, some fall due beside the worker over
        there, and some stand.
        """
        now = datetime.now(UTC)
        took = (now - self._began).total_seconds()
        first, last = 8 + 0.3 * took, 40 + 5 * took

        async def later(number: int) -> None:
            kind, name = kind_of(number), name_of(number)
            at = now + timedelta(seconds=first + (last - first) * (_GOLDEN * number % 1))
            wishes = [_wish(kind, each, at) for each in kind.later]
            await self._client.call(NAMESPACE, name, "wish", wishes)

        await self._each((n for n in self._numbers if kind_of(n).later), later)

    async def _open(self, number: int) -> None:
        """Start a subscription, and let it pay a few times."""
        kind, name, note = kind_of(number), name_of(number), _NOTES[number % len(_NOTES)]
        metadata = {"customer": number % 1000, "plan": None, "rate": 0.1 * number}
        far = self._began + _FAR + timedelta(seconds=number)
        wishes = [_wish(kind, each, far) for each in kind.far]
        if kind.name == "broken by a call":
            # It must not fire before the process is broken.
            held = datetime.now(UTC) + _HELD + timedelta(days=_turn(number) % 2)
            wishes.append(Wish(name="dunning", at=held))
        if kind.name == "broken by a timer":
            wishes.append(Wish(name=BREAKING, at=self._began))
        opening, key = Opening(number=number, note=note, wishes=wishes), f"open {number}"
        answer = await outcome(
            self._client.start(NAMESPACE, name, opening, idempotency_key=key, metadata=metadata)
        )
        self._keep(number, Asked(name, None, opening, key, answer))
        for place in range(1 + number % 3):
            await self._pay(number, Pay(amount=1 + place, note=note), f"pay {place}", context={"of": place})
        await self._special(number, kind, name)

    async def _special(self, number: int, kind: Kind, name: str) -> None:
        """Do what only this kind does."""
        match kind.name:
            case "broken by a call":
                # The second waits behind the first, and is cancelled with it; or it comes too late.
                await asyncio.gather(
                    self._pay(number, Pay(amount=UNPAYABLE), "break"),
                    self._pay(number, Pay(amount=5), "behind", keep=False),
                )
            case "sending":
                await self._client.call(NAMESPACE, name, "tell")
            case "redone":
                asked = await self._client.submit_call(NAMESPACE, name, "pay", Pay(amount=-1))
                await outcome(self._client.answer(asked))
                await outcome(self._client.redo(NAMESPACE, name, asked.task_id))
                await self._pay(number, _PLAIN_BYTES, "bytes", context="größe", priority=3)
                await self._client.set_timer(NAMESPACE, name, "by a client", after=_FAR)
            case _:
                pass

    async def _pay(self, number: int, args: Any, key: str, *, keep: bool = True, **more: Any) -> None:
        """Call, and keep the answer or the error."""
        name = name_of(number)
        call = self._client.call(NAMESPACE, name, "pay", args, idempotency_key=key, **more)
        answer = await outcome(call)
        if keep:
            self._keep(number, Asked(name, "pay", args, key, answer))

    async def _wait(self, number: int) -> None:
        """Send notices to a subscription that is paused: they wait in its mailbox."""
        for place in range(3):
            await self._client.notify(
                *(NAMESPACE, name_of(number), "note", f"waits {place}"),
                idempotency_key=f"waits {place}",
                priority=5 if place == 2 and _turn(number) % 2 else 0,
                expires=timedelta(days=7) if place == 1 else None,
            )

    def _keep(self, number: int, asked: Asked) -> None:
        """Keep an answer, if it is one of those that are asked for again."""
        if _turn(number) % max(1, len(self._numbers) // _KEPT_OF) == 0:
            self.answers.append(asked)

    async def _until_broken(self) -> None:
        """Wait until all are broken that break, by a call or by a timer."""
        wanted = sum(kind_of(n).name.startswith("broken") for n in self._numbers)
        # Nobody would set an event: what is waited for is in a database.
        while await asyncio.to_thread(self._count, _COUNT_BROKEN) < wanted:  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.1)

    def _count(self, statement: LiteralString) -> int:
        """Return the number that a statement counts."""
        row = self._database.execute(statement, [NAMESPACE]).fetchone()
        return int(row[0]) if row else 0


def _turn(number: int) -> int:
    """Return how many of the same kind came before, to vary within a kind."""
    return number // len(KINDS)


def _wish(kind: Kind, name: str, at: datetime) -> Wish:
    """Return a timer as this kind has it."""
    if kind.name == "recurring":
        return Wish(name=name, at=at, every="30 days" if name == "report" else "month")
    return Wish(name=name, at=at, remove=kind.name == "removed")


async def outcome(asked: Awaitable[Any]) -> Any:
    """Return the answer of a request, or its error as a text."""
    try:
        return await asked
    except ProgressorError as error:
        return f"{type(error).__name__}: {error}"
