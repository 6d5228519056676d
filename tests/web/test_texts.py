"""Texts of any kind: they are shown as they are, and nothing in them is a mark."""

from __future__ import annotations

from typing import Any

import pytest

from progressor import HandlerFailed
from tests.web.conftest import World
from tests.web.crawling import check_page, crawl
from tests.web.orders import SEEN
from tests.web.reading import Browser, Page

EVIL = "</script><img src=x onerror=alert(1)>\"'`&amp;{{7*7}}"
ID = "a/b?c#d%2F..~"
IDS = (ID, "..a", "~", "a b", "é", "a&b=c", "<b>", "100%", "a\\b", "x" * 256, "new", "bulk;a")
LARGEST = 2**63 - 1


async def evil(world: World, process_id: str = ID) -> None:
    """A process all of which is evil, and which is broken."""
    client = world.client
    await client.start(SEEN, process_id, {"item": EVIL}, metadata={EVIL: EVIL})
    await client.call(SEEN, process_id, "pay", {"amount": LARGEST - 1})
    await client.call(SEEN, process_id, "pay", {"amount": 1})
    await client.call(SEEN, process_id, "echo", {EVIL: [EVIL, LARGEST, 1e22, None]})
    with pytest.raises(HandlerFailed):
        await client.call(SEEN, process_id, "break", EVIL)


async def of(browser: Browser, process_id: str = ID) -> Page:
    """The page of a process, found by its id."""
    found = await browser.get("find", params={"q": f"{SEEN}/{process_id}"})
    assert found.status == 200, found.said
    assert found.said.count(process_id) >= 2
    return found


async def test_it_is_shown_as_it_is(served: World) -> None:
    """In state, events, arguments, answers, metadata and failures; numbers keep all digits."""
    await evil(served)
    browser = await served.browser()
    page = await of(browser)
    history = await browser.get(page.url + "?view=history")
    value = await browser.get(page.url + "/value")
    quoted = EVIL.replace('"', '\\"')
    for each in (page, history):
        check_page(each)
        assert "<img" not in each.html
        assert f'"item": "{quoted}"' in each.said
        assert f'"paid": {LARGEST}' in each.said
    assert f"RuntimeError: failure {EVIL}" in page.said
    assert f'"item": "event {quoted}"' in history.said
    assert f'"amount": {LARGEST - 1}' in history.said
    assert f'"{quoted}": [\n    "{quoted}",\n    {LARGEST},\n    1e+22,\n    null' in page.said
    assert EVIL in "".join(page.of("ul"))
    assert (value.answer.headers["Content-Type"], value.html.count(str(LARGEST))) == (
        "text/plain; charset=utf-8",
        1,
    )


async def test_it_is_found_by_all_its_links(served: World) -> None:
    """Every page that shows it leads to it, and its metadata lead to a search that finds it."""
    await evil(served)
    browser = await served.browser()
    url = (await of(browser)).url
    found = await crawl(browser, begin=url.removeprefix(browser.root))
    for path in ("", "processes", "broken", f"bulk/new?namespace={SEEN}&handler=break"):
        shown = [page for place, page in found.items() if place.startswith(browser.root + path)]
        assert any(url in page.links for page in shown), path
    (chip,) = (each for each in found[url].links if "metadata=" in each and "script" in each)
    assert [each for each in found[chip].links if each == url] == [url]
    assert len([each for each in found[chip].links if f"/processes/{SEEN}/" in each]) == 1


@pytest.mark.parametrize("process_id", IDS)
async def test_forms_reach_it(served: World, process_id: str) -> None:
    """It is called, repaired and removed, whatever its id."""
    await evil(served, process_id)
    browser = await served.browser()
    page = await of(browser, process_id)
    page = await browser.send(page.form("/repair", "handler"), "handler", args='{"item": "<b>&amp;"}')
    assert page.note == "repair answered: mended with <b>&amp;"
    page = await browser.send(page.form("/call", name="echo"), "call", args=f"[{LARGEST}]")
    assert page.note == f"echo answered: [{LARGEST}]"
    page = await browser.send(page.form("/call", name="echo"), "call", args='"\\u20ac\\r\\n;a=b"')
    assert page.note == "echo answered: €\\r\\n;a=b"
    page = await browser.send(page.form("/remove"), confirm=process_id)
    assert page.note == f"{SEEN}/{process_id} is removed."
    assert [each async for each in _ids(served) if each == process_id] == []


async def _ids(world: World) -> Any:
    for each in (await world.client.search(namespace=SEEN)).items:
        yield each.process_id


async def test_a_long_value_is_cut(served: World) -> None:
    """The state has a page of its own, where it is whole."""
    await served.client.start(SEEN, "long", {"item": "é" * 20_000 + "end"})
    browser = await served.browser()
    page = await browser.get(f"processes/{SEEN}/long")
    assert len(page.html) < 200_000
    assert "end" not in "".join(page.of("pre"))
    whole = await browser.get(next(each for each in page.links if each.endswith("/value")))
    assert "é" * 20_000 + "end" in whole.html


async def test_a_long_note_is_cut(served: World) -> None:
    """So that a browser keeps it: of cookies of more than 4 KiB it keeps none."""
    browser = await served.browser()
    page = await browser.get(f"processes/{SEEN}/order-1")
    page = await browser.send(page.form("/call", name="echo"), "call", args='"' + "😀" * 5000 + '"')
    (kept,) = (
        each
        for answer in page.answer.history
        for each in answer.headers.get_list("Set-Cookie")
        if each.startswith("progressor_note")
    )
    assert len(kept) < 4000
    assert page.note is not None
    assert page.note.startswith("echo answered: 😀")


async def test_notes_of_long_ids_are_cut_too(served: World) -> None:
    """Whatever their characters."""
    name = "😀" * 256
    await served.client.start(SEEN, name, {"item": "tea"})
    browser = await served.browser()
    page = await browser.send((await of(browser, name)).form("/remove"), confirm=name)
    (kept,) = (
        each
        for answer in page.answer.history
        for each in answer.headers.get_list("Set-Cookie")
        if each.startswith("progressor_note")
    )
    assert len(kept) < 4000
    assert page.note is not None
