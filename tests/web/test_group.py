"""A group of failures leads to the processes that it counts."""

from __future__ import annotations

import pytest

from progressor import HandlerFailed
from progressor.web.pages import broken
from tests.web.conftest import MARK, World
from tests.web.crawling import check_page
from tests.web.orders import HIDDEN, SEEN
from tests.web.reading import Browser

MESSAGE = "RuntimeError: failure of order <n>"


async def group_link(browser: Browser, path: str = "broken") -> str:
    """The link of the group of what broke the orders."""
    page = await browser.get(path)
    of = f"broken/group?namespace={SEEN}&"
    (link,) = (each for each in page.links if of in each and "failure+of+order" in each)
    return link


async def test_a_count_leads_to_its_processes(served: World) -> None:
    """And to no other: the same failure of another namespace, and another one of this, are left out."""
    client = served.client
    await client.start(SEEN, "order-4", {"item": "tea"})
    for name, said in (("order-1", "of order 1"), ("order-4", "of another kind")):
        with pytest.raises(HandlerFailed):
            await client.call(SEEN, name, "break", said)
    browser = await served.browser()
    page = await browser.get(await group_link(browser))
    check_page(page)
    assert "2 processes" in page.said
    shown = [each.rpartition("/")[2] for each in page.links if f"processes/{SEEN}/" in each]
    assert shown == ["order-1", "order-2"]
    assert "failure of order 2" in page.said
    page = await browser.get((await group_link(browser, "broken?since=1h")).replace("broken&", "retrying&"))
    assert "Nothing fails so any more." in page.said


async def test_a_group_comes_in_pages(served: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ids of its processes, each once."""
    monkeypatch.setattr(broken, "_PAGE", 1)
    with pytest.raises(HandlerFailed):
        await served.client.call(SEEN, "order-1", "break", "of order 1")
    browser = await served.browser()
    page = await browser.get(await group_link(browser))
    assert "order-1" in page.said
    assert "order-2" not in page.said
    (following,) = (each for each in page.links if "after=order-1" in each)
    page = await browser.get(following)
    assert "order-2" in page.said
    assert not [each for each in page.links if "after=" in each and each != page.url]


async def test_a_group_is_for_those_who_read_failures(world: World) -> None:
    """Of a hidden namespace it says no more than of one that there is not."""
    caller = await world.caller("all", namespaces=["a.*"])
    query = f"&status=broken&handler=call+break&message={MESSAGE}{MARK}"
    hidden = await caller.get(f"broken/group?namespace={HIDDEN}{query}")
    unknown = await caller.get(f"broken/group?namespace=b.unknown{query}")
    assert hidden.status == unknown.status == 403
    assert hidden.said.replace(HIDDEN, "b.unknown") == unknown.said
    blind = await world.caller("processes:read")
    assert (await blind.get(f"broken/group?namespace={SEEN}{query}")).status == 403
