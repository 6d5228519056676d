"""Failures that a browser has muted: it alone does not list them, and shows them at one click."""

from __future__ import annotations

from datetime import UTC, datetime

from progressor.client.failure_groups import FailureGroup
from progressor.web.app import make_console
from progressor.web.preferences import MOST_MUTED, MUTED, BrowserPreferences, mark_of
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.reading import Browser, Form, Page

FAILURE = "failure of order"


async def muting(browser: Browser, page: Page, how: str = "mute") -> Page:
    """Press the first such button of a page."""
    form, mark = buttons(page, how)[0]
    return await browser.send(form, mark)


def buttons(page: Page, how: str = "mute") -> list[tuple[Form, str]]:
    """The forms with such a button for one group, and the mark of that."""
    forms = [(each, dict(each.buttons).get(how, "all")) for each in page.forms_to("/settings")]
    return [(each, mark) for each, mark in forms if mark != "all"]


async def muted_all(browser: Browser) -> Page:
    page = await browser.get("broken")
    while buttons(page):
        page = await muting(browser, page)
    return page


async def test_a_group_is_muted_and_shown_again(world: World) -> None:
    """It is counted still; another browser lists it."""
    browser, other = await world.browser(), await world.browser()
    page = await muted_all(browser)
    assert page.url == f"{browser.root}broken"
    assert FAILURE not in page.said
    assert "muted in this browser: 2" in page.said
    assert "Nothing else is broken" in page.said
    assert FAILURE in (await other.get("broken")).said
    (url,) = (each for each in page.links if "muted=show" in each)
    page = await browser.get(url)
    assert FAILURE in page.said
    page = await muting(browser, page, "unmute")
    assert page.url == url
    page = await browser.get("broken")
    assert FAILURE in page.said
    assert "muted in this browser: 1" in page.said


async def test_all_are_shown_again_at_one_click(world: World) -> None:
    """The button stands where they are shown."""
    browser = await world.browser()
    await muted_all(browser)
    page = await browser.get("broken?muted=show")
    form = next(each for each in page.forms_to("/settings") if ("unmute", "all") in each.buttons)
    page = await browser.send(form, "all")
    assert len(buttons(page)) == 2
    assert "muted" not in page.said


async def test_the_overview_leaves_them_out(world: World) -> None:
    """It says how many, and its tile counts them."""
    browser = await world.browser()
    await muted_all(browser)
    page = await browser.get()
    assert FAILURE not in page.said
    assert "Failures muted in this browser: 2" in page.said
    assert any(url.endswith("broken?muted=show") for url in page.links)


async def test_a_filter_stays(world: World) -> None:
    """While one shows what is muted, and when one mutes."""
    browser = await world.browser()
    page = await browser.get("broken?namespace=a.orders&since=2d")
    page = await muting(browser, page)
    assert page.url == f"{browser.root}broken?namespace=a.orders&since=2d"
    (url,) = (each for each in page.links if "muted=show" in each)
    assert url == f"{browser.root}broken?namespace=a.orders&since=2d&muted=show"


async def test_a_console_that_only_reads_mutes_too(world: World) -> None:
    """Nothing but the browser is changed."""
    app = make_console(world.client, access=OpenAccess(), read_only=True)
    browser = await world.browser(app)
    assert FAILURE not in (await muted_all(browser)).said


def group(number: int) -> FailureGroup:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return FailureGroup("a", "broken", "call pay", f"m{number}", 1, False, moment, moment, "p")


def test_the_cookie_has_a_bound() -> None:
    """The newest are kept; a mark tells nothing of its group, and what is none is ignored."""
    preferences = BrowserPreferences()
    for number in range(MOST_MUTED + 5):
        value = preferences.muting({"mute": mark_of(group(number))})
        preferences = BrowserPreferences.of({MUTED: value})
    assert len(preferences.muted) == MOST_MUTED
    assert len(value) < 1000
    assert preferences.unmuted([group(0), group(MOST_MUTED)]) == [group(0)]
    assert preferences.muting({"mute": "x" * 16}) == value
    assert preferences.muting({"unmute": "all"}) == ""
    assert BrowserPreferences.of({MUTED: "a.b." + "c" * 5000}).muted == ()
    assert mark_of(group(1)) != mark_of(group(11))


async def test_a_mark_of_anything_else_is_not_kept(world: World) -> None:
    """The form may be written by hand."""
    browser = await world.browser()
    form = (await browser.get("settings")).forms_to("/settings")[0]
    fields = {"mute": "<script>", "form_proof": form.fields["form_proof"]}
    await browser.send(Form(form.action, "post", fields))
    assert "script" not in browser.http.cookies.get(MUTED, "")
