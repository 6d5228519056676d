"""Pages that refresh: as soon as a process changes, never more than once a second, and to nobody's harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.acceptance.support import until
from tests.support import eventually
from tests.web.browser.conftest import Tab, Windows
from tests.web.conftest import World
from tests.web.orders import SEEN

PATH = f"processes/{SEEN}/order-1"
CLOCK = "performance.now() / 1000"


def refreshes(tab: Tab) -> int:
    """How often the page was asked for by its script."""
    return tab.asked.count(tab.root + PATH) - 1


@asynccontextmanager
async def stepping(world: World) -> AsyncIterator[None]:
    """Steps of the process, one after the other, for as long as the block lasts."""

    async def step() -> None:
        while True:
            await world.client.call(SEEN, "order-1", "pay", {"amount": 1})

    task = asyncio.create_task(step())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_process_that_steps_all_the_time(served: World, tab: Tab) -> None:
    """Its page follows, and asks at most once a second; while it is paused it asks for nothing."""
    await tab.go(PATH)
    began = await tab.page.evaluate(CLOCK)
    async with stepping(served):
        await eventually(lambda: refreshes(tab) >= 4, "the page is refreshed")
        asked = refreshes(tab)
        took = await tab.page.evaluate(CLOCK) - began
        # The page loaded before the clock was read, by less than what the browser counts from.
        assert asked <= took + 2
        await tab.page.get_by_role("button", name="Live").click()
        await tab.page.get_by_role("button", name="Paused").wait_for()
        tab.asked.clear()
        before = (await served.client.get(SEEN, "order-1", range=None)).last_event_id
        await until(
            lambda: served.client.get(SEEN, "order-1", range=None),
            lambda found: found.last_event_id > before + 100,
        )
    # A browser fetches the icon when it likes.
    assert [url for url in tab.asked if "/static/icon." not in url] == []
    await tab.check()


async def test_a_change_is_shown_without_a_poll(served: World, windows: Windows) -> None:
    """The hint alone brings it, and the page says what `get` says."""
    tab = await windows.tab()
    # What asks every five seconds is taken away: the first hint is sent at once.
    await tab.go(PATH)
    await tab.page.evaluate(
        "document.getElementById('main').setAttribute('hx-trigger', 'changed');"
        " htmx.process(document.getElementById('main'))"
    )
    await served.client.call(SEEN, "order-1", "pay", {"amount": 37})
    await tab.page.get_by_text('"paid": 42').wait_for()
    await tab.check()


async def test_who_writes_is_not_disturbed(served: World, tab: Tab) -> None:
    """A page with a field that is filled in stays, and so does what is marked and what is open."""
    await tab.go(PATH)
    await tab.page.locator("details:has(form[action$=remove]) summary").click()
    field = tab.page.locator("form[action$=remove] input[name=confirm]")
    await field.fill("order")
    tab.asked.clear()
    await served.client.call(SEEN, "order-1", "pay", {"amount": 1})
    await tab.page.evaluate("htmx.trigger('#main', 'changed')")
    assert tab.root + PATH not in tab.asked
    await tab.page.get_by_role("button", name="Held").wait_for()
    assert await field.input_value() == "order"
    await field.fill("")
    await field.evaluate("(field) => field.blur()")
    await tab.page.get_by_text('"paid": 6').wait_for()
    await tab.page.get_by_role("button", name="Live").wait_for()
    # What is open stays open.
    assert await tab.page.locator("details:has(form[action$=remove])").get_attribute("open") is not None


async def test_a_page_that_nobody_sees_takes_no_hints(served: World, tab: Tab) -> None:
    """A browser has few connections to one host: a tab that is hidden gives its own back."""
    await tab.go(PATH)
    await eventually(lambda: tab.root + f"{PATH}/hints" in tab.asked, "hints are asked for")
    await tab.page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )
    assert await tab.page.evaluate("hints === null")
    tab.asked.clear()
    await tab.page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: false });"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )
    await eventually(lambda: tab.root + f"{PATH}/hints" in tab.asked, "hints are asked for again")
