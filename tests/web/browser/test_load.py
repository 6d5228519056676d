"""Charts: they zoom together, a refresh leaves the zoom alone, and their axis has the zone of the page."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from progressor.web.preferences import ZONE
from tests.acceptance.support import until
from tests.support import Tables
from tests.web.browser.conftest import Tab, Windows
from tests.web.test_load import COLUMNS, note

_SHOWN = "uPlot.sync('load').plots.map((chart) => [chart.scales.x.min, chart.scales.x.max])"
_MOST_STEPS = "Math.max(...uPlot.sync('load').plots[0].data[1])"
_AXIS = """
() => {
  const [{ axes: [axis], data: [times] }] = uPlot.sync("load").plots;
  const known = axis._splits.map((time, place) => [time, axis._values[place]]);
  return [known, times[0], times.at(-1)];
}
"""
Span = tuple[float, float]


async def spans(tab: Tab) -> set[Span]:
    """What each chart shows, in seconds: one span if all show the same."""
    found = await tab.page.evaluate(_SHOWN)
    assert len(found) == len(COLUMNS)
    return {(first, last) for first, last in found}


async def span(tab: Tab) -> Span:
    """What all charts show."""
    (found,) = await until(lambda: spans(tab), lambda found: len(found) == 1)
    return found


async def drag(tab: Tab) -> None:
    """Draw the mouse across the middle half of the first chart."""
    box: Any = await tab.page.locator("#chart-steps .u-over").bounding_box()
    height = box["y"] + box["height"] / 2
    await tab.page.mouse.move(box["x"] + box["width"] * 0.25, height)
    await tab.page.mouse.down()
    await tab.page.mouse.move(box["x"] + box["width"] * 0.5, height)
    await tab.page.mouse.move(box["x"] + box["width"] * 0.75, height)
    await tab.page.mouse.up()


async def test_a_refresh_leaves_the_zoom_alone(tables: Tables, tab: Tab) -> None:
    """All charts show what was marked in one, also when other figures come."""
    note(tables, 360, most=5)
    await tab.go("load?since=6h")
    whole = await span(tab)
    await drag(tab)
    await until(lambda: spans(tab), lambda found: found != {whole})
    zoomed = await span(tab)
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    length = whole[1] - whole[0]
    assert zoomed[1] - zoomed[0] == pytest.approx(length / 2, rel=0.05)
    note(tables, 360, most=5000)
    await tab.page.evaluate("htmx.trigger('#main', 'changed')")
    await until(lambda: tab.page.evaluate(_MOST_STEPS), lambda found: found > 5000)
    assert await span(tab) == zoomed
    await tab.page.locator("#chart-waiting .u-over").dblclick()
    await until(lambda: spans(tab), lambda found: found != {zoomed})
    first, last = await span(tab)
    assert last - first >= length - 60
    await tab.check()


async def test_keys_zoom_too(tables: Tables, tab: Tab) -> None:
    """Buttons do what dragging does, and stay in what there is."""
    note(tables, 360, most=5)
    await tab.go("load?since=6h")
    first, last = await span(tab)
    half = (last - first) / 2

    async def pressed(name: str) -> Span:
        before = await span(tab)
        await tab.page.get_by_role("button", name=name, exact=True).press("Enter")
        await until(lambda: spans(tab), lambda found: before not in found)
        return await span(tab)

    assert await pressed("Closer") == (first + half / 2, last - half / 2)
    assert await pressed("Later") == (first + half, last)
    assert await pressed("Earlier") == (first + half / 2, last - half / 2)
    assert await pressed("Earlier") == (first, last - half)
    assert await pressed("All") == (first, last)
    await tab.check()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
async def test_the_axis_has_the_clock_of_the_table(tables: Tables, windows: Windows, zone: str) -> None:
    """Whatever the zone of the browser is: round times of the page's zone stand on it."""
    note(tables, 360, most=5)
    tab = await windows.tab(timezone_id="Australia/Lord_Howe")
    await tab.page.context.add_cookies([{"name": ZONE, "value": zone, "url": tab.root}])
    await tab.go("load?since=6h")
    (ticks, first, last) = await tab.page.evaluate(_AXIS)
    assert len(ticks) > 2
    for time, text in ticks:
        assert first <= time <= last
        local = datetime.fromtimestamp(time, ZoneInfo(zone))
        assert text == local.strftime("%m-%d" if (local.hour, local.minute) == (0, 0) else "%H:%M")
        assert local.minute % 30 == 0
    assert f"Times are in {zone}" in await tab.page.inner_text("main")
    await tab.check()


async def test_a_chart_tells_the_value_under_the_mouse(tables: Tables, tab: Tab) -> None:
    """In all charts at once, with its minute."""
    note(tables, 360, most=5)
    await tab.go("load?since=6h")
    await tab.page.locator("#chart-steps .u-over").hover()
    read = tab.page.locator("figure:has(#chart-waiting) .there")
    await until(read.text_content, lambda text: text and text.endswith(": 14"))
    await tab.check()


async def test_charts_come_with_their_figures(tables: Tables, tab: Tab) -> None:
    """A page that had none draws them when it is refreshed; without scripts there is the table."""
    tables.execute("DELETE FROM samples")
    await tab.go("load?since=6h")
    assert await tab.page.locator(".uplot").count() == 0
    note(tables, 360, most=5)
    await tab.page.evaluate("htmx.trigger('#main', 'changed')")
    await tab.page.locator(".uplot").nth(len(COLUMNS) - 1).wait_for()
    await tab.check()


async def test_without_scripts_there_is_the_table(tables: Tables, windows: Windows) -> None:
    """No button stands there that would do nothing."""
    note(tables, 360, most=5)
    tab = await windows.tab(java_script_enabled=False)
    await tab.go("load?since=6h")
    assert await tab.page.locator("main tbody tr").count() >= 24
    assert await tab.page.locator(".zoom").is_hidden()
    assert tab.troubles == []
