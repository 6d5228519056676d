"""Forms that are refused: what was filled in is there again, and what is wrong has its name of the page."""

from __future__ import annotations

import pytest

from progressor import Retention
from tests.web.conftest import World
from tests.web.operators import Operator
from tests.web.orders import SEEN
from tests.web.reading import Page
from tests.web.test_filters import wrong
from tests.web.test_settings import preferring

ONE = f"processes/{SEEN}/order-1"
NEW = f"bulk/new?namespace={SEEN}&handler=break"


def texts(page: Page) -> str:
    """The text of a page, in one line."""
    return " ".join(page.said.split())


async def test_settings_that_are_refused(world: World) -> None:
    """They come back as they were filled in, with what is wrong beside its field, and hold no further."""
    browser = await world.browser()
    page = await preferring(browser, zone="Mars/Base", theme="dark", live="off", keys="off")
    assert page.status == 400
    form = page.forms_to("/settings")[1]
    assert {
        **form.fields,
        "zone": "Mars/Base",
        "theme": "dark",
        "live": "off",
        "keys": "off",
    } == form.fields
    assert wrong(page) == ["zone"]
    assert texts(page).count("Time zone must be chosen from its list") == 2
    assert ("html", "data-theme", "auto") in page.attributes
    page = await browser.send(form, zone="Asia/Kathmandu")
    assert ("html", "data-theme", "dark") in page.attributes


async def test_to_look_again_loses_nothing(operator: Operator) -> None:
    """Whether or not something matches: the rate, the way, the arguments and the reason stay."""
    filled = {"rate": "7", "how": "handler", "redo": "", "args": '{"item": "tea"}', "reason": "because"}
    page = await operator.get(NEW)
    for handler in ("nothing", "break"):
        page = await operator.browser.send(page.form("/bulk"), "again", handler=handler, **filled)
        assert page.status == 200
        assert filled.items() <= page.form("/bulk").fields.items()
    assert "Repair 1 process" in page.said
    assert await operator.acts() == []


async def test_what_was_not_shown_is_not_repaired(operator: Operator) -> None:
    """A filter that was changed since is shown first."""
    page = await operator.get(NEW)
    page = await operator.browser.send(page.form("/bulk"), handler="nothing", rate="7")
    assert page.status == 422
    assert "Nothing that is broken matches." in page.said
    assert page.form("/bulk").fields["rate"] == "7"
    assert await operator.acts() == []
    page = await operator.browser.send(page.form("/bulk"), handler="break")
    assert page.status == 422
    page = await operator.send(page.form("/bulk"))
    assert page.note == "The bulk has begun."


FILTERS = [
    (
        "processes?since=soon",
        "Created within must be a date and a time, such as 2026-01-31T09:00, or a duration",
    ),
    ("processes?metadata=pro", "Metadata must be written as plan=pro"),
    ("broken?since=soon", "or a duration up to now, such as 90m, 12h or 7d"),
    ("broken?namespace=a+b", "Namespace must match"),
    ("audit?since=2026-13-01", "Within must be a date and a time, such as 2026-01-31T09:00"),
    (f"bulk/new?namespace={SEEN}&handler={'x' * 300}", "Handler must have 1 to 256 characters"),
    (f"namespaces/{SEEN}/retention?tasks=soon", "Ended tasks must be a duration, such as 90m, 12h or 7d"),
    (f"namespaces/{SEEN}/retention?events={'9' * 5000}", "Events must be a duration"),
    (f"namespaces/{SEEN}/retention?events=0", "Events: a number must be from 1"),
    (
        f"namespaces/{SEEN}/retention?keys=7d",
        "Those with an idempotency key: without a time for tasks all are kept",
    ),
    (
        f"namespaces/{SEEN}/retention?tasks=9d&keys=7d",
        "Those with an idempotency key: a task with a key must be kept at least as long",
    ),
]


@pytest.mark.parametrize(("path", "said"), FILTERS)
async def test_a_filter_names_its_field_as_the_page_does(world: World, path: str, said: str) -> None:
    """Above and at the field."""
    page = await (await world.browser()).get(path)
    assert page.status == 400
    assert texts(page).count(said) == 2
    assert len(wrong(page)) == 1


async def test_forms_name_their_fields_as_the_page_does(operator: Operator) -> None:
    """Of a limit, a rate, a timer, arguments, and an id that is typed to remove it."""
    browser, one = operator.browser, await operator.get(ONE)
    forms = [
        ((await operator.get(NEW)).form("/bulk"), None, {"rate": "fast"}, "Repairs a second, at most must"),
        (
            (await operator.get(f"namespaces/{SEEN}")).form("/limit"),
            "set",
            {"group": "g", "limit": "many"},
            "Steps at once must be a number",
        ),
        (one.form("/timers", "set"), "set", {"after": "soon"}, "Due after must be a duration"),
        (one.form("/call", name="pay"), "call", {"args.amount": "x"}, "amount must be a whole number"),
        (one.form("/call", name="echo"), "call", {"args": "{"}, "Arguments, as JSON"),
        (one.form("/remove"), None, {"confirm": "x"}, "type the id of the process to remove it"),
    ]
    for form, button, fields, said in forms:
        page = await browser.send(form, button, **fields)
        assert page.status in (400, 422), fields
        assert said in texts(page), fields
        assert len([each for each in page.attributes if each[1] == "aria-invalid"]) == 1, fields
    assert await operator.acts() == []


async def test_times_are_typed_in_the_zone_of_the_browser(world: World) -> None:
    """A moment in a filter is one of that zone, and a year of retention may be written in ISO 8601."""
    browser = await world.browser()
    assert (await browser.get("processes?since=2026-01-31T09:00")).status == 200
    page = await browser.get(f"namespaces/{SEEN}/retention?tasks=P1Y&events=1000")
    await browser.send(page.form("/set"))
    assert (await world.client.retention(SEEN)).retention.events == Retention(events=1000).events
