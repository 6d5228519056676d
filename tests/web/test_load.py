"""The load: what its charts are drawn of, the table beside them, and whose load anybody sees."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from progressor.errors import InvalidRequest
from progressor.monitoring import LoadSample
from progressor.rights import Scope
from progressor.web.pages.namespaces.load import LoadCharts, fitting, rows_of, span_of
from tests.support import Tables
from tests.web.conftest import World
from tests.web.crawling import check_page
from tests.web.orders import HIDDEN, SEEN
from tests.web.reading import Page

BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
MONDAY = datetime(2026, 11, 30, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COLUMNS = ("steps", "waiting", "broken", "running", "timers")


def sample(at: datetime, steps: int = 0, **other: int) -> LoadSample:
    """A sample of a minute."""
    figures = {"broken": 0, "waiting": 0, "timers": 0, "running": 0, **other}
    return LoadSample(at=at, steps=steps, slots=None, age=timedelta(), **figures)


def note(tables: Tables, minutes: int, *, most: int = 2**40) -> None:
    """Samples of these last minutes: of the namespace that others must not see they are larger."""
    tables.execute("DELETE FROM samples")
    tables.execute(
        "INSERT INTO samples SELECT namespace_no, date_trunc('minute', now()) - age * interval '1 minute', "
        "0, 7, 0, age, CASE name WHEN %s THEN %s ELSE 60 + age END, NULL, '1 s' "
        "FROM namespaces CROSS JOIN generate_series(0, %s - 1) AS age WHERE name IN (%s, %s)",
        HIDDEN,
        most,
        minutes,
        SEEN,
        HIDDEN,
    )


def drawn(page: Page) -> dict[str, list[int | None]]:
    """The values of each chart of a page."""
    found = [json.loads(value) for _, name, value in page.attributes if name == "data-values"]
    return dict(zip(COLUMNS, found, strict=True)) if found else {}


def test_a_minute_that_nobody_noted_is_a_gap() -> None:
    """Of each minute between the first and the last there is a value or null, and one makes no line."""
    samples = [sample(MONDAY, 5), sample(MONDAY + MINUTE, 6, waiting=2), sample(MONDAY + 4 * MINUTE, 9)]
    charts = LoadCharts.of(samples, UTC)
    assert charts is not None
    assert charts.first == MONDAY.timestamp()
    assert charts.values["steps"] == "[5,6,null,null,9]"
    assert charts.values["waiting"] == "[0,2,null,null,0]"
    assert tuple(charts.values) == COLUMNS
    assert LoadCharts.of(samples[:1], UTC) is None
    assert LoadCharts.of([], UTC) is None


def test_charts_are_in_the_zone_of_the_page() -> None:
    """When its clocks change, they change with them."""
    change = datetime(2026, 10, 25, 1, tzinfo=UTC)
    samples = [sample(change + number * MINUTE) for number in (-2, -1, 0, 1)]
    charts = LoadCharts.of(samples, BERLIN)
    assert charts is not None
    began = int(samples[0].at.timestamp())
    assert json.loads(charts.offsets) == [[began, 7200], [int(change.timestamp()), 3600]]
    utc = LoadCharts.of(samples, UTC)
    assert utc is not None
    assert json.loads(utc.offsets) == [[began, 0]]


def test_a_row_is_of_an_hour_of_the_clock() -> None:
    """It has the average of the steps, and of all else the most; zones differ by half hours too."""
    samples = [sample(MONDAY + number * MINUTE, number, waiting=number % 7) for number in range(90)]
    rows = rows_of(samples, timedelta(hours=1), UTC)
    assert [(each.at, each.steps, each.waiting) for each in rows] == [
        (MONDAY, 30, 6),
        (MONDAY + 60 * MINUTE, 74, 6),
    ]
    rows = rows_of(samples, timedelta(hours=1), KOLKATA)
    assert [each.at for each in rows] == [MONDAY - 30 * MINUTE, MONDAY + 30 * MINUTE]


@pytest.mark.parametrize(
    ("namespaces", "widest"), [(1, "24h"), (34, "24h"), (35, "6h"), (139, "1h"), (9999, "1h")]
)
def test_of_many_namespaces_less_of_the_time_is_read(namespaces: int, widest: str) -> None:
    """What is not read is not offered, and whoever asks for it learns what there is."""
    spans = fitting(namespaces)
    assert span_of("", spans).name == spans[-1].name == widest
    assert span_of("1h", spans).name == "1h"
    if widest != "24h":
        with pytest.raises(InvalidRequest, match=f"{widest} for so many namespaces together"):
            span_of("24h", spans)


@pytest.mark.parametrize(("since", "minutes", "rows"), [("1h", 60, 12), ("6h", 360, 24), ("24h", 1440, 24)])
async def test_all_of_the_time_is_drawn(
    world: World, tables: Tables, since: str, minutes: int, rows: int
) -> None:
    """A value for each minute of it, and a table that is short."""
    note(tables, 1500, most=1)
    browser = await world.browser()
    page = await browser.get(f"load?since={since}&namespace={SEEN}")
    check_page(page)
    values = drawn(page)
    # The minute that ends while the page is asked for.
    assert {len(each) for each in values.values()} <= {minutes - 1, minutes}
    assert values["steps"][-1] in (60, 61)
    assert set(values["waiting"]) == {7}
    labelled = [value for _, name, value in page.attributes if (name, value) == ("data-label", "From")]
    assert len(labelled) in (rows, rows + 1)


async def test_nobody_sees_the_load_of_others(world: World, tables: Tables) -> None:
    """Not in the sum of all namespaces, nor by the name of one."""
    note(tables, 60)
    caller = await world.caller(Scope.PROCESSES_READ, namespaces=["a.*"])
    page = await caller.get("load?since=1h")
    assert max(value or 0 for value in drawn(page)["steps"]) < 1000
    assert HIDDEN not in page.html
    everybody = await world.caller("all")
    assert max(value or 0 for value in drawn(await everybody.get("load?since=1h"))["steps"]) > 2**40
    page = await caller.get(f"load?namespace={HIDDEN}")
    assert page.status == 403
    assert drawn(page) == {}


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("since=3h", 400, "since must be one of 1h, 6h, 24h"),
        ("namespace=a.order", 404, repr(SEEN)),
        ("namespace=%20", 200, "A scanner notes the load once a minute"),
    ],
)
async def test_without_figures_a_page_says_why(
    world: World, tables: Tables, query: str, status: int, said: str
) -> None:
    """What was mistyped stands in its field; without samples it says where they come from."""
    tables.execute("DELETE FROM samples")
    page = await (await world.browser()).get(f"load?{query}")
    check_page(page)
    assert page.status == status
    assert said in page.said
    assert page.form("/load").fields["namespace"] == query.partition("namespace=")[2].strip("%20")


async def test_lines_lead_to_charts(world: World, tables: Tables) -> None:
    """From the overview to the load of all, from a namespace to its own."""
    note(tables, 9)
    browser = await world.browser()
    assert f"{browser.root}load" in (await browser.get()).links
    page = await browser.get(f"namespaces/{SEEN}")
    assert f"{browser.root}load?namespace={SEEN}" in page.links
    loaded = [url for url in page.assets if "uPlot" in url]
    assert not loaded
    assert len([url for url in (await browser.get("load")).assets if "uPlot" in url]) == 2
