"""Every page that can be reached, at any place where the console stands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from progressor import Client
from progressor.loggers import message_of
from progressor.web import EVERYTHING, Principal, console
from progressor.web.app import make_console
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.crawling import check_headers, check_page, crawl
from tests.web.orders import HIDDEN, SEEN, scheduled

PLACES = (
    "",
    "processes",
    "broken",
    "namespaces",
    "load",
    "workers",
    "schedules",
    "feed",
    "bulk",
    "audit",
    "system",
    "settings",
    f"namespaces/{SEEN}",
    f"namespaces/{HIDDEN}",
    f"processes/{SEEN}/order-1",
    f"processes/{SEEN}/order-1?view=history",
    f"processes/{SEEN}/order-2",
    "processes/a.idle/begins",
    "bulk/1",
    f"bulk/new?namespace={SEEN}&handler=break",
)


class Stripping:
    """A proxy that takes a prefix away and tells nobody."""

    def __init__(self, app: Any, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(self._prefix), f"{scope['path']} leaves {self._prefix}"
        path, raw = scope["path"].removeprefix(self._prefix), scope["raw_path"]
        below = {"path": path, "raw_path": raw.removeprefix(self._prefix.encode())}
        await self._app({**scope, **below}, receive, send)


def standing(place: str, client: Client) -> tuple[Any, str]:
    """The console at this place, and its root."""
    app: Any = make_console(client, access=OpenAccess())
    if place == "mounted":
        host = Starlette()
        host.mount("/a/b", console(client, authorize=lambda _: Principal("host", EVERYTHING)))
        return host, "/a/b/"
    if place == "behind a proxy":
        return Stripping(app, "/ops/prg"), "/ops/prg/"
    return app, "/"


@pytest.mark.parametrize("place", ["alone", "mounted", "behind a proxy"])
async def test_every_link_leads_somewhere(world: World, place: str) -> None:
    """No page runs or loads what is not the console's own, and none leads away from it."""
    app, root = standing(place, world.client)
    browser = await world.browser(app, root=root)
    found = await crawl(browser)
    for each in PLACES:
        assert any(url.startswith(browser.root + each) for url in found), each
    assert {url.rpartition(".")[2] for url in found if "/static/" in url} == {"css", "js", "svg"}


async def test_a_crawl_of_typed_states(world: World, engine_client: Client) -> None:
    """The client may know the types of the namespaces, as an engine's does."""
    browser = await world.browser(make_console(engine_client, access=OpenAccess()))
    found = await crawl(browser)
    page = found[f"{browser.root}processes/{SEEN}/order-1"]
    assert '"item": "tea-1"' in page.said
    assert '"paid": 5' in page.said


@pytest.fixture
async def engine_client(world: World) -> AsyncIterator[Client]:
    """A client that knows the namespaces."""
    async with Client(world.dsn, [scheduled(SEEN, "nightly")]) as client:
        yield client


async def test_no_page_is_silent_about_what_it_forbids(world: World) -> None:
    """Not a page that is none, a method that is none, a file that is none, nor a defect."""
    browser = await world.browser()
    for path in ("nowhere", "static/nothing.css", "static/..%2Fapp.py", "processes/a", "a//b"):
        page = await browser.get(path)
        assert page.status == 404, path
        check_page(page)
    answer = await browser.http.request("PUT", "processes")
    assert answer.status_code == 405
    check_headers(answer)
    answer = await browser.http.request("HEAD", "processes")
    assert (answer.status_code, answer.content) == (200, b"")
    check_headers(answer)


@pytest.mark.parametrize("place", ["alone", "mounted", "behind a proxy"])
async def test_a_defect_is_a_page(world: World, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """With the headers of all others, its style, and nothing of the error."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the inside of the console")

    monkeypatch.setattr(type(world.client.reader), "standing", broken)
    app, root = standing(place, world.client)
    browser = await world.browser(app, root=root)
    for path in (f"processes/{SEEN}/order-1", f"processes/{SEEN}/a%2Fb"):
        page = await browser.get(path)
        assert page.status == 500
        assert "the inside" not in page.html
        assert page.answer.headers["X-Request-Id"] in page.said
        check_page(page)
        for url in page.assets:
            assert (await browser.get(url)).status == 200, url


async def test_live_pages_refresh_from_themselves(world: World) -> None:
    """The address of the refresh is that of the page, with its query; forms and problems stay."""
    browser = await world.browser()

    async def refreshed(path: str) -> list[str]:
        page = await browser.get(path)
        return [value for _, name, value in page.attributes if name == "hx-get"]

    assert await refreshed("processes?status=error&metadata=plan%3D%22%3E%3Cimg") == [
        "?status=error&metadata=plan%3D%22%3E%3Cimg"
    ]
    assert await refreshed("broken") == [""]
    assert await refreshed("settings") == []
    assert await refreshed("nowhere?a=b") == []


async def test_why_a_process_broke_is_said_in_every_view(world: World) -> None:
    """With the task that broke it, and its arguments, wherever its timeline begins."""
    browser = await world.browser()
    for query in ("", "?view=history", "?view=raw", "?before=1"):
        page = await browser.get(f"processes/{SEEN}/order-2{query}")
        assert "call break with" in " ".join(page.said.split()), query
        assert "A timer that broke it" not in page.said


async def test_files_have_the_hash_of_their_contents(world: World) -> None:
    """A name without it, or with another one, is no file."""
    browser = await world.browser()
    (style,) = (url for url in (await browser.get()).assets if url.endswith(".css"))
    assert re.search(r"/console\.[0-9a-f]{12}\.css$", style)
    assert (await browser.get(style.replace("console.", "console.0"))).status == 404
    assert (await browser.get("static/console.css")).status == 404


async def test_pages_that_were_shown_fill_no_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Live pages ask every five seconds: a line is for forms, and for what was refused."""
    caplog.set_level("INFO", "progressor.http")
    browser = await world.browser()
    await browser.get("processes")
    page = await browser.get("nowhere")
    assert page.status == 404
    await browser.send((await browser.get("settings")).forms_to("/settings")[1])
    # A line is written at the end of the loop's turn.
    await asyncio.sleep(0)
    lines = [vars(each) for each in caplog.records if message_of(each) == "request answered"]
    assert [(each["method"], each["status"]) for each in lines] == [("GET", 404), ("POST", 303)]
