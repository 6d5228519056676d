"""A console on a socket, and a real browser on it: Chromium, without a screen."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright

from progressor import Client
from progressor.http.server.serve import ApiServer
from progressor.web.app import make_console
from tests.open_access import OpenAccess
from tests.web.conftest import World

VARIABLE = "PROGRESSOR_TEST_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# A browser that asks nobody but the console for anything.
_ARGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
# Milliseconds, on a machine that does much else.
_PATIENCE = 120_000
# What a page forbids reaches the console of the browser too, but not always.
_NOTED = """
window.forbidden = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.forbidden.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


def program() -> str:
    """The path of the browser; what is missing is an error, as for the database."""
    found = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail(
            "the tests of the console need a browser: `apt-get install chromium`, or name the program of"
            f" yours, Chromium or Chrome, in {VARIABLE}"
        )
    return found


class Tab:
    """A tab of the browser: it notes what a page was refused, and what failed in its scripts."""

    def __init__(self, page: Page, root: str) -> None:
        self.page, self.root = page, root
        self.troubles: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.troubles.append(f"{page.url}: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, said: ConsoleMessage) -> None:
        # A page that is a refusal says so itself. A file that was refused is a trouble.
        is_page = said.text.startswith("Failed to load resource") and "/static/" not in said.location["url"]
        if said.type in ("error", "warning") and not is_page:
            self.troubles.append(f"{self.page.url}: {said.text}")

    async def go(self, path: str = "") -> None:
        """Load the page at an address below the root."""
        answer = await self.page.goto(self.root + path)
        assert answer is not None
        assert answer.ok, f"{path}: {answer.status}"

    async def check(self) -> None:
        """Nothing was refused or has failed so far."""
        forbidden = await self.page.evaluate("window.forbidden")
        assert (self.troubles, forbidden) == ([], []), self.page.url
        outside = [url for url in self.asked if not url.startswith((self.root, "data:"))]
        assert not outside


@asynccontextmanager
async def opened() -> AsyncIterator[Browser]:
    """The browser, for as long as the block lasts."""
    args = [*_ARGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    path = program()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=args, timeout=_PATIENCE)
        yield browser
        await browser.close()


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    """The browser."""
    async with opened() as browser:
        yield browser


@pytest.fixture
async def root(served: World, stack: AsyncExitStack) -> str:
    """The address of a console, where everybody may do everything, over processes that an engine serves."""
    client = Client(served.dsn)
    app = make_console(client, access=OpenAccess())
    server = ApiServer(client, app, host="127.0.0.1", port=0, what="console")
    await stack.enter_async_context(server)
    return f"{server.url}/"


class Windows:
    """Windows of one browser on one console, each with cookies of its own."""

    def __init__(self, browser: Browser, root: str) -> None:
        self._browser, self._root = browser, root
        self._open: list[BrowserContext] = []

    async def tab(
        self, *, width: int = 1440, theme: Literal["light", "dark"] = "light", **options: Any
    ) -> Tab:
        """A tab of a new window."""
        size: Any = {"width": width, "height": 900}
        window = await self._browser.new_context(viewport=size, color_scheme=theme, **options)
        self._open.append(window)
        window.set_default_timeout(_PATIENCE)
        await window.add_init_script(_NOTED)
        return Tab(await window.new_page(), self._root)

    async def close(self) -> None:
        """Close them all."""
        for each in self._open:
            await each.close()


@pytest.fixture
async def windows(chromium: Browser, root: str) -> AsyncIterator[Windows]:
    """Windows on the console."""
    windows = Windows(chromium, root)
    yield windows
    # Before the console ends, which waits for nobody who reads.
    await windows.close()


@pytest.fixture
async def tab(windows: Windows) -> Tab:
    """A tab of a window."""
    return await windows.tab()
