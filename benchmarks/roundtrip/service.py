"""The processes of the round trip: subscriptions, of each kind that a table can hold.

Rule: what a subscription is follows from its number, so that any part of the program knows it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import BaseModel

from progressor import Monthly, Namespace, NonRetryable, Process, Reject

NAMESPACE, NOBODY = "roundtrip.subscription", "roundtrip.nobody"
MONTH = timedelta(days=30)
UNPAYABLE = 13
BREAKING = "breaking"
"""The name of the timer that breaks its process, unless it was repaired."""


class Kind(NamedTuple):
    """A kind of subscription: its timers, by whether they are due soon, and what else is done with it.

    `later` has the timers that a call sets last, when it is known how long all the others took.
    """

    name: str
    far: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    recurring: bool = False


KINDS = (
    *(Kind("no timer"),) * 4,
    *(Kind("far", far=("",)),) * 4,
    *(Kind("soon", later=("",)),) * 2,
    *(Kind("named", far=("renewal",), later=("dunning",)),) * 2,
    Kind("several", far=("", "renewal", "dunning")),
    Kind("recurring", far=("invoice",), later=("report",), recurring=True),
    Kind("removed", later=("end",)),
    Kind("broken by a call", far=("renewal",)),
    Kind("broken by a timer", far=("",)),
    Kind("waiting", far=("",)),
    Kind("sending", later=("",)),
    Kind("redone"),
)


def kind_of(number: int) -> Kind:
    """Return the kind of a subscription."""
    return KINDS[number % len(KINDS)]


def name_of(number: int) -> str:
    """Return the id of a subscription, some of them with letters of all kinds."""
    return f"{'größe ✓' if number % 50 == 0 else 'acme'}-{number:07}"


class Wish(BaseModel):
    """A timer to be set: `every` 30 days, or on the last day of each month, or once."""

    name: str = ""
    at: datetime
    every: str | None = None
    remove: bool = False


class Opening(BaseModel):
    """The arguments of a start."""

    number: int
    note: Any = None
    wishes: list[Wish] = []


class Subscription(BaseModel):
    """A state with values that JSON, Python and PostgreSQL might read differently."""

    number: int
    note: Any
    total: int = 0
    paid: list[int] = []
    noted: list[str] = []
    fired: dict[str, int] = {}
    repaired: bool = False


class Pay(BaseModel):
    """The arguments of a payment."""

    amount: int
    note: Any = None


subscriptions = Namespace(
    NAMESPACE, state=Subscription, group=lambda opening: f"tenant {opening.number % 7}", concurrency=256
)


@subscriptions.init
async def begin(process: Process[Subscription], opening: Opening) -> dict[str, int]:
    """Open a subscription."""
    process.state = Subscription(number=opening.number, note=opening.note)
    process.metadata["opened"] = {"number": opening.number, "note": opening.note}
    process.emit("opened", note=opening.note)
    _set(process, opening.wishes)
    return {"number": opening.number}


@subscriptions.call
async def pay(process: Process[Subscription], args: Pay) -> int:
    """Add to the total; refuse nothing and less, and break at an amount that nobody can pay."""
    if args.amount <= 0:
        raise Reject("an amount is positive", amount=args.amount)
    if args.amount == UNPAYABLE:
        raise OverflowError("nobody can pay this: größer als erlaubt")
    process.state.paid.append(args.amount)
    process.state.total += args.amount
    process.metadata["total"] = process.state.total
    process.emit("paid", amount=args.amount, note=args.note)
    return process.state.total


@subscriptions.call
async def note(process: Process[Subscription], text: str) -> None:
    """Keep a text, in the order of the mailbox."""
    process.state.noted.append(text)
    process.emit("noted", text=text)


@subscriptions.call
async def wish(process: Process[Subscription], wishes: list[Wish]) -> None:
    """Set timers."""
    _set(process, wishes)


@subscriptions.call
async def tell(process: Process[Subscription]) -> None:
    """Send a message that nobody takes yet: it waits in the outbox."""
    process.send(NOBODY, "main", "told", {"number": process.state.number}, idempotency_key=None)


@subscriptions.timeout
async def fire(process: Process[Subscription]) -> None:
    """Note that a timer has fired, and when it was due."""
    name = process.task.name or ""
    if name == BREAKING and not process.state.repaired:
        raise NonRetryable("the timer breaks it")
    process.state.fired[name] = process.state.fired.get(name, 0) + 1
    process.emit("fired", timer=name, due=process.task.scheduled_time)


@subscriptions.repair
async def mend(process: Process[Subscription]) -> bool:
    """Let the process go on."""
    process.state.repaired = True
    process.emit("mended")
    return True


def _set(process: Process[Subscription], wishes: list[Wish]) -> None:
    """Set timers in a step."""
    for each in wishes:
        match each.every:
            case "30 days":
                process.set_timer(each.name, at=each.at, every=MONTH)
            case "month":
                process.set_timer(each.name, at=each.at, every=Monthly(31, tz="Europe/Berlin"))
            case _:
                process.set_timer(each.name, at=each.at, remove=each.remove)
