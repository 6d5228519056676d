"""Schedules as they are declared: what they send for a nominal time, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor import Cron, Each, InvalidRequest, Message, Namespace, Process
from progressor.schedules import SCHEDULES, Declaration, schedules_of

NIGHTLY = Cron("0 2 * * *", tz="Europe/Berlin")
NOMINAL = datetime(2026, 3, 30, 22, 30, tzinfo=UTC)
KEY = "schedule/shop.order/nightly/2026-03-30T22:30:00+00:00"


class Day(BaseModel):
    day: str


def orders() -> Namespace[Any]:
    namespace: Namespace[Any] = Namespace("shop.order")

    @namespace.init
    async def begin(process: Process[Any], day: Day) -> None: ...

    @namespace.call
    async def close(process: Process[Any], day: Day) -> None: ...

    return namespace


async def later(at: datetime) -> str:
    return str(at)


def message(to: str | None = None, **doing: Any) -> Message:
    namespace = orders()
    namespace.schedule("nightly", NIGHTLY, **doing)
    return namespace.schedules["nightly"].message(NOMINAL, to=to)


def test_a_start_gets_the_time_of_the_zone() -> None:
    """In Berlin it is the next day already; so it is for the arguments."""
    sent = message(start=lambda at: f"close-{at:%Y%m%d-%H%M}", args=lambda at: Day(day=f"{at:%F}"))
    args = b'{"day":"2026-03-31"}'
    assert sent == Message(
        "shop.order", "close-20260331-0030", args=args, kind="start", idempotency_key=KEY
    )


def test_a_notice_by_names_and_by_function() -> None:
    """Both are the same message."""
    sent = message(notify=("shop.ledger", "main", "close"), args={"day": "x"})
    assert sent == Message("shop.ledger", "main", "close", b'{"day":"x"}', idempotency_key=KEY)
    namespace = orders()
    close = namespace.calls["close"]
    assert close.name == "close"
    ledger: Namespace[Any] = Namespace("shop.ledger")

    @ledger.call(name="close")
    async def close_ledger(process: Process[Any], day: Day) -> None: ...

    assert message(notify=(close_ledger, "main"), args={"day": "x"}) == sent


def test_a_notice_to_each() -> None:
    """The process is named for each message."""
    sent = message("o17", each=Each("close", {"plan": "pro"}))
    assert sent == Message("shop.order", "o17", "close", None, idempotency_key=KEY)


def test_its_timer_has_the_name_of_its_process() -> None:
    """So a worker without its code leaves it to one that has it."""
    namespace = orders()
    namespace.schedule(
        "nightly",
        NIGHTLY,
        start="x",
        jitter=timedelta(minutes=5),
        within=timedelta(hours=2),
        catch_up="all",
    )
    schedule = namespace.schedules["nightly"]
    assert schedule.process_id == schedule.timer.name == "shop.order/nightly"
    declaration = Declaration.of(schedule)
    assert declaration == Declaration.model_validate_json(declaration.model_dump_json())
    assert declaration.timer.keywords()["every"] == NIGHTLY
    assert (declaration.sends, declaration.overlap) == ("start shop.order/x", "skip")
    serving = schedules_of([namespace])
    assert serving is not None
    assert {"timeout shop.order/nightly", "timeout shop.order/nightly queue"} <= set(serving.served())


def test_no_schedule_no_namespace() -> None:
    """An engine without schedules serves none."""
    assert schedules_of([orders()]) is None


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("name", {"name": "a b"}),
        ("name", {"name": "n" * 200}),
        ("every", {"every": "0 2 * * *"}),
        ("jitter", {"every": timedelta(minutes=1), "jitter": timedelta(minutes=2)}),
        ("start", {}),
        ("start", {"notify": ("a", "b", "c")}),
        ("start", {"start": 7}),
        ("start", {"start": ""}),
        ("notify", {"start": None, "notify": ("a", "b")}),
        ("namespace", {"start": None, "notify": ("a b", "b", "c")}),
        ("function", {"start": None, "notify": (len, "b")}),
        ("each", {"start": None, "each": {"plan": "pro"}}),
        ("call", {"start": None, "each": Each("")}),
        ("function", {"start": None, "each": Each(len)}),
        ("overlap", {"overlap": "never"}),
        ("catch_up", {"catch_up": "some"}),
        ("args", {"args": object()}),
        ("start", {"start": lambda: "x"}),
        ("start", {"start": later}),
        ("args", {"args": later}),
        ("args", {"args": Day}),
    ],
)
def test_what_is_refused(field: str, given: dict[str, Any]) -> None:
    """As it is declared, with the argument that is wrong."""
    given = {"name": "nightly", "every": NIGHTLY, "start": "x"} | given
    if field == "start" and given["start"] == "x":
        given |= {"start": None} if given.get("notify") is None else {}
    with pytest.raises(InvalidRequest) as refused:
        orders().schedule(given.pop("name"), given.pop("every"), **given)
    assert refused.value.field == field


def test_two_of_one_name() -> None:
    """Each has a process of its own."""
    namespace = orders()
    namespace.schedule("nightly", NIGHTLY, start="x")
    with pytest.raises(InvalidRequest, match="two schedules"):
        namespace.schedule("nightly", NIGHTLY, start="y")


def test_each_is_for_the_own_namespace() -> None:
    """A function of another one is refused."""
    other: Namespace[Any] = Namespace("shop.ledger")

    @other.call
    async def close(process: Process[Any]) -> None: ...

    with pytest.raises(InvalidRequest, match=r"of shop\.ledger"):
        orders().schedule("nightly", NIGHTLY, each=Each(close))


@pytest.mark.parametrize(
    "doing",
    [
        {"notify": ("shop.order", "main", "clos")},
        {"each": Each("clos")},
    ],
)
def test_a_target_that_is_not_there(doing: dict[str, Any]) -> None:
    """It is refused before anything is served; in namespaces of other engines it cannot be known."""
    namespace = orders()
    namespace.schedule("nightly", NIGHTLY, **doing)
    with pytest.raises(InvalidRequest, match=r"needs 'call clos' of namespace shop\.order"):
        schedules_of([namespace])
    elsewhere = orders()
    elsewhere.schedule("nightly", NIGHTLY, notify=("shop.ledger", "main", "clos"))
    assert schedules_of([elsewhere]) is not None


def test_the_name_is_the_engines_own() -> None:
    """No other namespace may have it."""
    with pytest.raises(InvalidRequest, match="the engine's own"):
        schedules_of([Namespace(SCHEDULES)])
