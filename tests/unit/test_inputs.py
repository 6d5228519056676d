"""What a user hands in is checked before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace
from progressor.inputs import (
    HistoryRange,
    check_moment,
    check_namespace,
    check_text,
    check_timer,
    redo_key,
    redone_with,
)
from progressor.timers import SetTimer


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "é", "a" * 257, None, 3, "a\n"])
def test_namespace_names(name: Any) -> None:
    """A namespace's name is plain ASCII that starts with a letter or digit."""
    with pytest.raises(InvalidRequest, match=r"^namespace must (match|be the name of one)"):
        check_namespace(name)
    assert check_namespace("billing.subscription-2_x") == "billing.subscription-2_x"


def test_a_namespace_in_place_of_its_name() -> None:
    """The error says what to give instead; of anything else it does not guess."""
    with pytest.raises(InvalidRequest) as refused:
        check_namespace(Namespace("shop.cart"))
    assert refused.value.field == "namespace"
    assert str(refused.value) == (
        "namespace must be the name of one, as text, not <Namespace shop.cart>: give its name, 'shop.cart' "
        "(`namespace.name`), or ask `client.process(namespace, process_id)`, which takes the Namespace"
    )
    with pytest.raises(InvalidRequest, match=r"not 3$"):
        check_namespace(3)


@pytest.mark.parametrize("value", ["", "a" * 257, "a\x00", "\ud800", None, 3])
def test_texts(value: Any) -> None:
    """A text has 1 to 256 characters that PostgreSQL can store."""
    with pytest.raises(InvalidRequest, match=r"^process_id must") as caught:
        check_text("process_id", value)
    assert caught.value.field == "process_id"
    assert check_text("process_id", "счёт/1 😀") == "счёт/1 😀"


def test_keys_of_redos() -> None:
    """A key names the task that runs again; any other text, also of a file that was edited, names none."""
    assert [redone_with(redo_key(task_id)) for task_id in (17, -3)] == [17, -3]
    for key in (None, "", "order-17", redo_key(1) + "x", redo_key(1).removesuffix("1"), "x" + redo_key(1)):
        assert redone_with(key) is None


@pytest.mark.parametrize(
    "values",
    [{"offset": -1}, {"offset": 2**63}, {"limit": -1}, {"limit": 2**63}, {"direction": "up"}],
    ids=repr,
)
def test_history_range(values: Any) -> None:
    """A range of history has numbers that PostgreSQL holds, none negative, and one of two directions."""
    with pytest.raises(InvalidRequest) as caught:
        HistoryRange(**values)
    assert caught.value.field in values


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"at": datetime(2026, 1, 1, tzinfo=UTC), "after": timedelta(1)},
        {"at": datetime(2026, 1, 1)},
        {"at": "tomorrow"},
        {"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
        {"at": datetime(9998, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))},
        {"at": datetime(2, 1, 1, tzinfo=timezone(timedelta(hours=5)))},
        {"after": 30},
        {"after": timedelta.max},
        {"after": timedelta.min},
    ],
)
def test_set_timer(values: Any) -> None:
    """A timer has one time: an aware datetime or a timedelta, that PostgreSQL can hold."""
    with pytest.raises(InvalidRequest, match=r"^SetTimer"):
        SetTimer(**values)


@pytest.mark.parametrize("time", [timedelta(days=30), datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_time_in_the_place_of_a_timers_name(time: Any) -> None:
    """The error says where it belongs."""
    said = "must be a text, not (timedelta|datetime): a delay is given as after=, a moment as at=$"
    with pytest.raises(InvalidRequest, match=said):
        check_timer(time)
    with pytest.raises(InvalidRequest, match=r"must be a text, not int$"):
        check_timer(7)


class Odd(tzinfo):
    """A time zone whose offset is whatever its maker took it for."""

    def __init__(self, offset: Any) -> None:
        self.offset = offset

    def utcoffset(self, _moment: datetime | None) -> Any:
        if isinstance(self.offset, Exception):
            raise self.offset
        return self.offset


@pytest.mark.parametrize(
    "odd", [None, "UTC", timedelta(days=2), ZeroDivisionError()], ids=lambda value: type(value).__name__
)
def test_odd_time_zones(odd: Any) -> None:
    """A moment whose offset cannot be told is none, wherever it is stated."""
    moment = datetime(2030, 1, 1, tzinfo=Odd(odd))
    with pytest.raises(InvalidRequest, match=r"^SetTimer\.at must be an aware datetime"):
        SetTimer(at=moment)
    with pytest.raises(InvalidRequest, match=r"^created_after must be an aware datetime"):
        check_moment("created_after", moment)


def test_moments_are_in_utc() -> None:
    """What is kept of a moment depends on no time zone's code."""
    there = datetime(2030, 1, 1, 5, tzinfo=Odd(timedelta(hours=5)))
    assert check_moment("created_after", there).tzinfo is UTC
    assert SetTimer(at=there) == SetTimer(at=datetime(2030, 1, 1, tzinfo=UTC))
