"""How long a namespace keeps what has ended is set behind an estimate, and taken back; walks are begun."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from progressor import ArchiveUnavailable, Retention
from progressor.client.reader import Reader
from progressor.monitoring import KnownRetention
from progressor.web.app import make_console
from progressor.web.typed import typed_time
from tests.acceptance.support import until
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.operators import Operator
from tests.web.orders import SEEN

PATH = f"namespaces/{SEEN}/retention"
REASON = "as anna said"
DAYS = Retention(tasks=timedelta(days=90), events=1000)


async def test_times_are_set_behind_what_they_delete(operator: Operator) -> None:
    """The page says for how long, by whose word; the estimate stands beside the button."""
    page = await operator.get(PATH)
    assert not page.forms_to("/set")
    form = page.form("/retention")
    assert form.fields == {"tasks": "", "keys": "", "events": ""}
    page = await operator.browser.send(form, tasks="90d", keys="2000h", events="1000")
    page = await operator.browser.send(page.form("/retention"), tasks="90d", keys="2160h")
    assert re.search(r"0 of \d+, 0\.0 MiB", page.said)
    page = await operator.send(page.form("/set"), reason=REASON)
    assert page.note == "These times hold from now on."
    for said in ("90 d", "the newest 1,000 of each process", "an operator"):
        assert said in page.said
    kept = (await operator.world.client.retention(SEEN)).retention
    assert kept == Retention(tasks=timedelta(days=90), keys=timedelta(days=90), events=1000)
    await operator.only_act("set_retention", namespace=SEEN, reason=REASON)
    assert page.form("/retention").fields == {"tasks": "90d", "keys": "90d", "events": "1000"}
    assert "90 d" in (await operator.get(f"namespaces/{SEEN}")).said


async def test_an_empty_form_keeps_everything(operator: Operator) -> None:
    """No estimate is made of what deletes nothing."""
    await operator.world.client.set_retention(SEEN, DAYS)
    page = await operator.get(PATH)
    page = await operator.browser.send(page.form("/retention"), tasks="", events=" ")
    assert "everything is kept for ever" in page.said
    await operator.send(page.form("/set"))
    known = await operator.world.client.retention(SEEN)
    assert (known.retention.is_for_ever, known.is_set) == (True, True)


async def test_the_archive_is_a_part_of_it(operator: Operator) -> None:
    """A tick travels from the estimate to what is set, and back into the form."""
    page = await operator.browser.get(f"{PATH}?tasks=30d&archive=on")
    assert page.form("/set").fields["archive"] == "on"
    page = await operator.send(page.form("/set"))
    assert (await operator.world.client.retention(SEEN)).archive
    assert page.form("/retention").fields["archive"] == "on"


async def test_the_times_of_the_code_are_taken_back(operator: Operator) -> None:
    """The form stands only where an operator has set some."""
    assert not (await operator.get(PATH)).forms_to("/unset")
    await operator.world.client.set_retention(SEEN, DAYS)
    page = await operator.send((await operator.get(PATH)).form("/unset"), reason=REASON)
    assert page.note == "The times of the code hold from now on."
    assert not (await operator.world.client.retention(SEEN)).is_set
    assert [(each.verb, each.reason) for each in await operator.acts()] == [("set_retention", REASON)]


async def test_a_walk_begins_now(operator: Operator) -> None:
    """The page shows the last one, and what it deleted."""
    client = operator.world.client
    assert not (await operator.get(PATH)).forms_to("/run")
    await client.set_retention(SEEN, DAYS)

    async def ended() -> KnownRetention:
        return await client.retention(SEEN)

    first = await until(ended, lambda known: known.ended_at is not None)
    page = await operator.send((await operator.get(PATH)).form("/run"), reason=REASON)
    assert page.note is not None
    await operator.only_act("begin_retention", namespace=SEEN, reason=REASON)
    await until(ended, lambda known: known.ended_at is not None and known.ended_at > first.ended_at)
    page = await operator.get(PATH)
    assert "Last walk" in page.said
    assert "0 tasks and 0 events deleted" in page.said


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("tasks=soon", "Ended tasks must be a duration, such as 90m, 12h or 7d"),
        ("tasks=30m", "greater than or equal to 1 hour"),
        ("tasks=&events=0", "a number must be from 1"),
        ("tasks=&keys=90d", "give tasks a time"),
    ],
)
async def test_a_mistyped_time(world: World, query: str, rule: str) -> None:
    """It comes back as it was typed, with what is wrong; nothing can be set with it."""
    browser = await world.caller("all")
    page = await browser.get(f"{PATH}?{query}")
    assert page.status == 400
    assert rule in page.said
    given = dict(each.split("=") for each in query.split("&"))
    assert given.items() <= page.form("/retention").fields.items()
    assert not page.forms_to("/set")
    wrong = [tag for tag, name, _ in page.attributes if name == "aria-invalid"]
    assert len(wrong) == 1
    proof = (
        page.form("/run")
        if page.forms_to("/run")
        else (await browser.get(f"{PATH}?tasks=90d")).form("/set")
    )
    page = await browser.send(proof, **{"tasks": "", **given})
    assert (page.status, rule in page.said) == (400, True)
    assert not (await world.client.retention(SEEN)).is_set


async def test_who_only_reads_sees_the_estimate(world: World) -> None:
    """As over HTTP; the forms that change it are for others, and not in a console that only reads."""
    reading = make_console(world.client, access=OpenAccess(), read_only=True)
    await world.client.set_retention(SEEN, DAYS)
    for browser in (await world.caller("processes:read"), await world.browser(reading)):
        page = await browser.get(f"{PATH}?tasks=90d")
        assert re.search(r"0 of \d", page.said)
        for form in ("/set", "/unset", "/run"):
            assert not page.forms_to(form)


async def test_the_times_of_the_code_are_shown(world: World) -> None:
    """With the way to what they would delete, if an operator has set others."""
    await world.client.set_retention(SEEN, DAYS)
    said = '{"retention": {"tasks": "P7D"}}'
    with psycopg.connect(world.dsn) as connection:
        connection.execute("UPDATE progressor.namespaces SET options = options || %s::jsonb", [said])
    browser = await world.caller("all")
    page = await browser.get(PATH)
    assert "P7D" in page.said
    (url,) = (each for each in page.links if "tasks=P7D" in each)
    page = await browser.get(url)
    assert "delete now" in page.said
    assert page.form("/set").fields["tasks"] == "P7D"


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (None, ""),
        (timedelta(days=90), "90d"),
        (timedelta(hours=36), "36h"),
        (timedelta(minutes=61), "61m"),
        (timedelta(days=1, seconds=1), "P1DT1S"),
    ],
)
def test_a_time_as_it_is_typed(time: timedelta | None, text: str) -> None:
    """In days, hours or minutes if these say it exactly."""
    assert typed_time(time) == text


async def test_the_limit_of_a_group(operator: Operator) -> None:
    """It is set before a process is in it, shown, and taken back."""
    path, client = f"namespaces/{SEEN}", operator.world.client
    form = (await operator.get(path)).form("/limit")
    page = await operator.send(form, "set", group="tenant 1", limit="0", reason=REASON)
    assert page.note == "0 steps of tenant 1 at once."
    await operator.only_act("set_group_limit", namespace=SEEN, reason=REASON)
    (group,) = await client.groups(SEEN)
    assert (group.name, group.limit, group.has_own_limit) == ("tenant 1", 0, True)
    assert "tenant 1" in page.said
    page = await operator.send(page.form("/limit"), "unset", group="tenant 1")
    assert page.note == "tenant 1 has the limit of its namespace."
    assert not [each for each in await client.groups(SEEN) if each.has_own_limit]


@pytest.mark.parametrize(
    ("group", "limit", "rule"),
    [
        ("a", "", "Steps at once must be a number"),
        ("a", "many", "Steps at once must be a number"),
        ("a", "99999999999", "limit"),
        ("", "3", "Group must have 1 to"),
    ],
)
async def test_a_mistyped_limit(world: World, group: str, limit: str, rule: str) -> None:
    """The form comes back as it was, and says what is wrong at the field."""
    browser = await world.caller("all")
    form = (await browser.get(f"namespaces/{SEEN}")).form("/limit")
    page = await browser.send(form, "set", group=group, limit=limit)
    assert page.status == 400
    assert rule in page.said
    form = page.form("/limit")
    assert (form.fields["group"], form.fields["limit"]) == (group, limit)
    assert [value for _, name, value in page.attributes if name == "aria-invalid"] == ["true"]
    assert not await world.client.groups(SEEN)


async def test_groups_are_shown_a_page_at_a_time(world: World) -> None:
    """A namespace may have one for each of its customers."""
    for number in range(101):
        await world.client.set_group_limit(SEEN, f"tenant {number:03}", 1)
    browser = await world.caller("all")
    page = await browser.get(f"namespaces/{SEEN}")
    assert "tenant 099" in page.said
    assert "tenant 100" not in page.said
    (url,) = (each for each in page.links if "?group=" in each)
    page = await browser.get(url)
    assert "tenant 100" in page.said
    assert "tenant 099" not in page.said


async def test_a_walk_that_nobody_can_make(world: World) -> None:
    """The page says what a round that is due waits for: its archive too, or nothing if all is kept."""
    browser = await world.browser()
    for wanted, said in (
        (Retention(tasks=timedelta(days=1), archive=True), "that has an archive (PROGRESSOR_ARCHIVE)"),
        (Retention(tasks=timedelta(days=1)), "a zombie collector"),
    ):
        await world.client.set_retention(SEEN, wanted)
        for path in (PATH, f"namespaces/{SEEN}"):
            page = await browser.get(path)
            assert "Waits for" in page.said
            assert said in page.said
            assert wanted.archive == ("PROGRESSOR_ARCHIVE" in page.said)
    await world.client.set_retention(SEEN, Retention())
    assert "Waits for" not in (await browser.get(PATH)).said


async def test_a_history_whose_archive_fails(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what is left in the database, and why there is no more of it."""

    async def fails(*_args: Any, **_options: Any) -> None:
        raise ArchiveUnavailable(SEEN, "no such bucket")

    monkeypatch.setattr(Reader, "with_history", fails)
    page = await operator.get(f"processes/{SEEN}/order-1?view=history")
    assert page.status == 200
    assert "Events before 1 are not shown" in page.said
    assert "no such bucket" in page.said
    assert '"item": "event tea-1"' in page.said
