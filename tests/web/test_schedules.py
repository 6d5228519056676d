"""One schedule: what became of its last times, and the times of the past that it makes up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from progressor.errors import InvalidRequest
from progressor.schedules import SCHEDULES, Span
from progressor.web.app import make_console
from progressor.web.typed import moment_of
from tests.acceptance.support import until
from tests.open_access import OpenAccess
from tests.web.conftest import MARK, World
from tests.web.operators import Operator
from tests.web.orders import HIDDEN, SEEN

PATH = f"schedules/{SEEN}/nightly"
REASON = "as anna said"
# The rule has one time a year: the first of January.
FIVE = {"since": "2020-01-01T00:00", "until": "2024-12-31T00:00:00"}


async def sent(world: World, times: int) -> None:
    """Wait until a schedule has sent so many times."""

    async def found() -> Any:
        return await world.client.get(SCHEDULES, f"{SEEN}/nightly")

    await until(found, lambda each: len(each.history) >= times)


async def test_times_of_the_past_are_said_and_sent(operator: Operator) -> None:
    """First which; behind the button they are sent, and their processes stand in the log."""
    page = await operator.get(PATH)
    assert "It has sent nothing yet" in page.said
    assert not page.forms_to("/backfill")
    form = next(each for each in page.forms if "since" in each.fields)
    page = await operator.browser.send(form, **FIVE)
    assert "5 times" in page.said
    for year in range(2020, 2025):
        assert f"{year}-01-01 00:00:00" in page.said
    page = await operator.send(page.form("/backfill"), reason=REASON)
    assert page.note == "5 times are sent, in their order."
    await operator.only_act("backfill_schedule", reason=REASON)
    await sent(operator.world, 1)
    page = await operator.get(PATH)
    assert f"{operator.browser.root}processes/{SEEN}/2020" in page.links
    # The run that was started goes on: an order has timers.
    assert "4 wait" in page.said


async def test_a_backfill_that_is_sent_twice_is_one(operator: Operator) -> None:
    """The form has a key of its own."""
    page = await operator.browser.get(f"{PATH}?since=2020-01-01T00:00&until=2020-06-01T00:00")
    form = page.form("/backfill")
    for _ in range(2):
        page = await operator.browser.send(form)
        assert page.note == "1 time is sent."
    await operator.only_act("backfill_schedule")


async def test_times_are_those_of_the_browsers_zone(world: World) -> None:
    """A range that begins at midnight there has the time that is then."""
    browser = await world.caller("all")
    await browser.send((await browser.get("settings")).forms_to("/settings")[1], zone="Asia/Kathmandu")
    page = await browser.get(f"{PATH}?since=2020-01-01T05:45&until=2020-01-01T05:46")
    assert "1 time:" in page.said
    page = await browser.get(f"{PATH}?since=2020-01-01T05:46&until=2020-01-01T06:00")
    assert "no time in this range" in page.said
    assert not page.forms_to("/backfill")


@pytest.mark.parametrize(
    ("query", "status", "rule"),
    [
        ("since=soon", 400, "From must be a date and a time"),
        ("since=2020-01-01T00:00&until=1st", 400, "Before, or now must be a date and a time"),
        ("since=2020-01-01T00:00&until=9000-01-01", 422, "until must not lie in the future"),
        ("since=0001-01-01T00:00", 422, "more than 1,000 times"),
        ("since=0001-01-02T00:00", 422, "more than 1,000 times"),
    ],
)
async def test_a_range_that_cannot_be(world: World, query: str, status: int, rule: str) -> None:
    """It comes back as it was typed, with what is wrong."""
    browser = await world.caller("all")
    page = await browser.get(f"{PATH}?{query}")
    assert page.status == status
    assert rule in page.said
    given = dict(each.split("=") for each in query.split("&"))
    form = next(each for each in page.forms if "since" in each.fields and not each.is_post)
    assert given.items() <= form.fields.items()
    assert not page.forms_to("/backfill")


async def test_an_empty_range_is_none(operator: Operator) -> None:
    """Nothing is said to be sent, and a form without a begin sends nothing."""
    page = await operator.get(f"{PATH}?since=&until=")
    assert not page.forms_to("/backfill")
    page = await operator.get(f"{PATH}?since=2020-01-01T00:00&until=2020-06-01T00:00")
    page = await operator.browser.send(page.form("/backfill"), since="")
    assert page.status == 400
    assert "From is required" in page.said
    assert await operator.acts() == []


async def test_a_refused_backfill(operator: Operator) -> None:
    """The page says why; and a paused schedule has no such form."""
    page = await operator.get(f"{PATH}?since=2020-01-01T00:00&until=2020-06-01T00:00")
    form = page.form("/backfill")
    await operator.world.client.call(SCHEDULES, f"{SEEN}/nightly", "pause", "stocktaking")
    page = await operator.browser.send(form)
    assert page.status == 422
    assert "the schedule is paused" in page.said
    page = await operator.get(PATH)
    assert "Resume it first" in page.said
    assert not [each for each in page.forms if "since" in each.fields]


async def test_a_target_that_is_hidden_leaves_no_trace(operator: Operator) -> None:
    """Nor is its process looked up; one that is gone is said to be."""
    world = operator.world
    await world.client.call(
        SCHEDULES,
        f"{SEEN}/nightly",
        "backfill",
        Span(since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2020, 6, 1, tzinfo=UTC)),
    )
    await sent(world, 1)
    caller = await world.caller("all", namespaces=["a.*"])
    await until(lambda: caller.get(PATH), lambda page: "running" in page.said)
    await world.client.remove(SEEN, "2020")
    assert "gone" in (await caller.get(PATH)).said
    for path in (f"schedules/{HIDDEN}/{MARK}nightly", f"schedules/{HIDDEN}/none"):
        assert (await caller.get(path)).status == 403
    assert (await caller.get(f"schedules/{SEEN}/none")).status == 404


async def test_a_start_of_what_is_there_makes_nothing(operator: Operator) -> None:
    """The log says so; a start that made its process has no such word."""
    client = operator.world.client
    await client.start(SEEN, "2020", {"item": "tea"})
    form = (await operator.get("schedules")).form("/schedules", namespace=SEEN)
    page = await operator.get(f"{PATH}?since=2020-01-01T00:00&until=2020-06-01T00:00")
    await operator.send(page.form("/backfill"))
    await sent(operator.world, 1)
    assert "it was there before: nothing was started" in (await operator.get(PATH)).said
    await client.remove(SEEN, "2020")
    page = await operator.send(form, "trigger")
    assert page.url.endswith(PATH)
    await sent(operator.world, 2)
    page = await until(lambda: operator.get(PATH), lambda page: "running" in page.said)
    assert "it was there before" not in page.said
    assert "gone" in page.said


async def test_who_may_not_change_it_sees_no_such_form(world: World) -> None:
    """Nor does a console that only reads have one; without state:read its log is not shown."""
    reading = await world.browser(make_console(world.client, access=OpenAccess(), read_only=True))
    caller = await world.caller("processes:read")
    for browser in (reading, caller):
        page = await browser.get(PATH)
        assert page.status == 200
        assert not page.forms_to("/backfill")
        assert not [each for each in page.forms if "since" in each.fields]
    assert "The scope state:read shows what it sent" in (await caller.get(PATH)).said


def test_a_moment_as_it_is_typed() -> None:
    """Without an offset it is of the zone; what lies outside of all years is none."""
    assert moment_of("", "since", UTC) is None
    assert moment_of("2026-01-31T09:00+01:00", "since", UTC) == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert moment_of("2026-01-31", "since", UTC) == datetime(2026, 1, 31, tzinfo=UTC)
    for text in ("x", "2026-13-01", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"):
        with pytest.raises(InvalidRequest, match="such as 2026-01-31T09:00"):
            moment_of(text, "since", UTC)
