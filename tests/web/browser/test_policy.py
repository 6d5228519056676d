"""What a browser says of the pages: nothing is refused to them, and no script of theirs fails."""

from __future__ import annotations

import pytest

from tests.web.browser.conftest import Tab
from tests.web.orders import SEEN
from tests.web.test_crawling import PLACES

# Finds the first button of a kind that was not pressed yet; returns the kind: its address and its word.
_NEXT = """
([known, press]) => {
  for (const button of document.querySelectorAll("form[method=post] button")) {
    const form = button.closest("form");
    const action = form.getAttribute("action").split("/").at(-1);
    const kind = `${action}: ${button.textContent.trim().split(/[0-9]/)[0]}`;
    if (!known.includes(kind)) {
      form.closest("details")?.setAttribute("open", "");
      const needed = form.querySelectorAll("input:required, textarea:required");
      needed.forEach((each) => { each.value ||= "1"; });
      if (press) {
        button.click();
      }
      return kind;
    }
  }
  return null;
}
"""


async def test_all_pages(tab: Tab) -> None:
    """They load what they need, from the console alone."""
    for path in PLACES:
        await tab.go(path)
        # A live page is refreshed once, by what its script does.
        await tab.page.evaluate("htmx.trigger('#main', 'changed')")
    await tab.go(f"processes/{SEEN}/order-1?view=raw")
    await tab.check()


# It presses some thirty buttons: minutes, on a machine that does much else.
@pytest.mark.timeout(900)
async def test_all_actions(tab: Tab) -> None:
    """Each form of each page, by each of its buttons, works as a browser sends it."""
    pressed: list[str] = []
    # A page that refreshes between two looks at its buttons may have others then.
    await tab.go("")
    await tab.page.get_by_role("button", name="Live").click()
    await tab.page.get_by_role("button", name="Paused").wait_for()
    for path in (f"bulk/new?namespace={SEEN}", *PLACES):
        await tab.go(path)
        while (kind := await tab.page.evaluate(_NEXT, [pressed, False])) is not None:
            async with tab.page.expect_navigation():
                assert await tab.page.evaluate(_NEXT, [pressed, True]) == kind
            pressed.append(kind)
            await tab.page.wait_for_load_state()
            await tab.check()
            await tab.go(path)
    actions = {each.split(":")[0] for each in pressed}
    assert {"bulk", "repair", "call", "timers", "redo", "remove", "pause"} <= actions, pressed
