"""What everybody can read and reach: contrast, names, keys, narrow screens."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.support import Tables
from tests.web.browser.conftest import Tab, Windows
from tests.web.conftest import World
from tests.web.orders import SEEN
from tests.web.test_crawling import PLACES

RULES: Any = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
_TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
# All that acts must be an element that a browser leads keys to.
_UNREACHABLE = """
() => [...document.querySelectorAll("main *, header *, nav *")]
  .filter((each) => each.matches("a, button, input, select, textarea, summary"))
  .filter((each) => each.tabIndex < 0 && each.type !== "hidden")
  .map((each) => each.outerHTML)
"""
# A narrow screen shows the name of a column before each value.
_UNLABELLED = """
() => [...document.querySelectorAll("main table")].flatMap((table) => {
  const heads = [...table.querySelectorAll("thead th")];
  const shown = (head) => head.querySelector(".hidden") ? undefined : head.textContent.trim();
  return [...table.querySelectorAll("tbody td")]
    .filter((each) => each.dataset.label !== shown(heads[each.cellIndex]))
    .map((each) => each.outerHTML);
})
"""


@pytest.fixture
def lines(tables: Tables) -> None:
    """Samples of the load, of which lines are drawn."""
    tables.execute(
        "INSERT INTO samples SELECT namespace_no, date_trunc('minute', now()) - age * interval '1 minute', "
        "age, 2 * age, 0, age, 0, NULL, '1 s' FROM namespaces CROSS JOIN generate_series(1, 9) AS age "
        "ON CONFLICT DO NOTHING"
    )


# It looks at twenty pages: minutes, on a machine that does much else.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
async def test_no_page_shuts_anybody_out(
    windows: Windows, lines: None, width: int, theme: Literal["light", "dark"]
) -> None:
    """WCAG 2.1 AA forbids nothing of it, no page is wider than its screen, and keys reach all."""
    tab = await windows.tab(width=width, theme=theme)
    for path in (*PLACES, "sign-in", "nowhere", f"processes/{SEEN}/order-1?view=raw"):
        await tab.page.goto(tab.root + path)
        found = await Axe().run(tab.page, options=RULES)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        assert not await tab.page.evaluate(_TOO_WIDE), f"{path} is too wide"
        assert await tab.page.evaluate(_UNREACHABLE) == [], path
        assert await tab.page.evaluate(_UNLABELLED) == [], path
        drawn = await tab.page.locator("main svg").count()
        assert drawn == 0 or await tab.page.locator("main details table").count() > 0, path


async def test_a_repair_by_keys_alone(served: World, tab: Tab) -> None:
    """From the overview to the processes that broke, and on to their repair."""
    await tab.go()
    await tab.page.keyboard.press("g")
    async with tab.page.expect_navigation():
        await tab.page.keyboard.press("b")
    await _press(tab, "Repair all")
    await _press(tab, "Repair 1 process")
    assert tab.page.url.rpartition("/")[2].isdigit(), await tab.page.inner_text("main")


async def test_a_process_is_found_by_keys(tab: Tab) -> None:
    """The slash leads to the field, wherever one stands; a word in it is no command."""
    await tab.go("audit")
    await tab.page.keyboard.press("/")
    async with tab.page.expect_navigation():
        await tab.page.keyboard.type(f"{SEEN}/order-2\n")
    assert tab.page.url == f"{tab.root}processes/{SEEN}/order-2"


async def _press(tab: Tab, word: str) -> None:
    """Move by the tab key until this stands under it, and press it."""
    for _ in range(100):
        await tab.page.keyboard.press("Tab")
        if word in await tab.page.evaluate("document.activeElement.textContent"):
            break
    async with tab.page.expect_navigation():
        await tab.page.keyboard.press("Enter")
    await tab.page.wait_for_load_state()
