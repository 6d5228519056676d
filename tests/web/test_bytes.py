"""Values that the console cannot read: those of raw namespaces, and those whose keys are elsewhere."""

from __future__ import annotations

from contextlib import AsyncExitStack

from progressor import Client, Engine
from progressor.codecs import Keyring
from progressor.web.app import make_console
from tests.http import shop
from tests.http.test_keyring import K1, K2, NS, vault
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.crawling import check_page, crawl

ONE, TWO = Keyring("k1", {"k1": K1}), Keyring("k2", {"k2": K2})


async def test_a_raw_namespace(world: World, stack: AsyncExitStack) -> None:
    """Its values are bytes, or JSON if they are that; its processes are called with JSON."""
    engine = await stack.enter_async_context(Engine(world.dsn, [shop.raw()]))
    await engine.client.start("shop.raw", "r", b"\xff</pre><i>")
    browser = await world.browser()
    path = "processes/shop.raw/r"
    found = await crawl(browser, begin=path)
    for view in ("", "?view=history", "?view=raw", "?view=timeline"):
        assert "<i>" not in found[browser.root + path + (view or "?view=raw")].html
    assert "ff 3c 2f 70" in found[f"{browser.root}{path}?view=raw"].said
    assert "b'\\xff</pre><i>'" in found[browser.root + path].said
    page = await browser.send((await browser.get(path)).form("/call"), "call", name="any", args="[1, 2]")
    assert page.status == 200, page.said
    check_page(page)


async def test_a_namespace_whose_key_is_elsewhere(world: World, stack: AsyncExitStack) -> None:
    """The console says what it lacks or shows bytes, never a defect; with the key it reads all."""
    engine = await stack.enter_async_context(Engine(world.dsn, [vault(ONE)]))
    await engine.client.start(NS, "p", ["sesame"])
    without = await world.browser()
    other = await stack.enter_async_context(Client(world.dsn, [vault(TWO)]))
    wrong = await world.browser(make_console(other, access=OpenAccess()))
    for browser in (without, wrong):
        for path in ("", "processes", "broken", f"namespaces/{NS}"):
            assert (await browser.get(path)).status == 200, path
        for view in ("timeline", "history", "raw"):
            page = await browser.get(f"processes/{NS}/p?view={view}")
            assert page.status in (200, 500), view
            assert "A defect" not in page.said
            assert "sesame" not in page.said
            check_page(page)
    own = await stack.enter_async_context(Client(world.dsn, [vault(ONE)]))
    browser = await world.browser(make_console(own, access=OpenAccess()))
    for view in ("timeline", "history"):
        assert "sesame" in (await browser.get(f"processes/{NS}/p?view={view}")).said
    page = await browser.get(f"processes/{NS}/p")
    page = await browser.send(page.form("/call", name="add"), "call", args='"open"')
    assert page.note == 'add answered: ["sesame", "open"]'
