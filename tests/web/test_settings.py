"""What a browser prefers: its zone, its theme, and whether pages refresh."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.web.conftest import World
from tests.web.orders import SEEN
from tests.web.reading import Browser, Page

PATH = f"processes/{SEEN}/order-1"
KATHMANDU = ZoneInfo("Asia/Kathmandu")
_TIME = re.compile(r'<time datetime="([^"]+)" title="([^"]+)">([^<]+)</time>')


async def preferring(browser: Browser, **fields: str) -> Page:
    """Send the form of the settings."""
    return await browser.send((await browser.get("settings")).forms_to("/settings")[1], **fields)


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "UTC"])
async def test_times_are_shown_in_the_zone(world: World, zone: str) -> None:
    """In the text and the title; the exact moment beside it stays in UTC."""
    browser = await world.browser()
    await preferring(browser, zone=zone)
    seen = 0
    for path in (PATH, f"{PATH}?view=history", "audit", "schedules"):
        for exact, title, text in _TIME.findall((await browser.get(path)).html):
            assert exact.endswith("Z")
            local = datetime.fromisoformat(exact).astimezone(ZoneInfo(zone))
            assert title == f"{local:%Y-%m-%d %H:%M:%S %Z}"
            if text[0].isdigit() and "-" in text:
                seen += 1
                assert text == f"{local:%Y-%m-%d %H:%M:%S}"
    assert seen > 5


async def test_the_zone_is_not_that_of_the_server(world: World) -> None:
    """The two differ by what they should."""
    browser = await world.browser()
    created = (await world.client.get(SEEN, "order-1")).created_at
    for zone in (UTC, KATHMANDU):
        await preferring(browser, zone=str(zone))
        assert f"{created.astimezone(zone):%H:%M:%S}" in (await browser.get(PATH)).html


async def test_theme_and_refresh(world: World) -> None:
    """They stay, and the button in the bar leads back to its page."""
    browser = await world.browser()
    page = await preferring(browser, theme="dark", live="off")
    assert ("html", "data-theme", "dark") in page.attributes
    page = await browser.get(PATH)
    assert ("html", "data-theme", "dark") in page.attributes
    assert "hx-get" not in {name for _, name, _ in page.attributes}
    page = await browser.send(page.forms_to("/settings")[0])
    assert page.url == browser.root + PATH
    assert "hx-get" in {name for _, name, _ in page.attributes}
    # The overview has no name below the root.
    page = await browser.send((await browser.get()).forms_to("/settings")[0])
    assert page.url == browser.root


async def test_cookies_of_settings_are_the_browsers_alone(world: World) -> None:
    """No script reads them, and no other site sends them with a form."""
    browser = await world.browser()
    form = (await browser.get("settings")).forms_to("/settings")[1]
    answer = (await browser.send(form, zone="Asia/Kathmandu", follow=False)).answer
    said = answer.headers.get_list("Set-Cookie")
    assert len(said) == 4
    for cookie in said:
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie


async def test_the_settings_say_who_one_is(world: World) -> None:
    """With scopes and namespaces, for callers of any rights."""
    browser = await world.caller("audit:read", namespaces=["a.*", "c"])
    page = await browser.get("settings")
    assert page.status == 200
    assert "audit:read" in page.said
    assert "a.*, c" in page.said


async def test_a_token_is_shown_by_its_name(world: World) -> None:
    """In the bar and the settings, which say how the audit calls it; another caller has its own name."""
    token, bearer = await world.client.tokens.create(
        "anna <b>", scopes=["all"], namespaces=["*"], lifetime=None
    )
    browser = await world.browser(world.guarded, token=bearer.text)
    page = await browser.get("settings")
    assert page.said.count("token anna <b>") == 2
    assert f"token {token.token_id}" in page.said
    assert ("a", "title", f"token {token.token_id}") in page.attributes
    await browser.send((await browser.get("namespaces/a.orders")).form("/pause"))
    assert (await world.client.audit()).entries[0].actor == f"token {token.token_id}"
    assert "anybody" in (await (await world.browser()).get("settings")).said
