"""A crawler: it begins at the root of a console, follows every link, and knocks at every form."""

from __future__ import annotations

import re
from collections import deque
from urllib.parse import urlencode, urljoin, urlsplit

import httpx

from progressor.web.headers import POLICY
from tests.web.reading import Browser, Page

IMMUTABLE = "public, max-age=31536000, immutable"
_STYLED = re.compile(r"@import|url\(", re.IGNORECASE)
_LEADING = frozenset({"href", "src", "action", "formaction", "hx-get", "hx-post"})


def check_headers(answer: httpx.Response) -> None:
    """What every answer says to a browser, whatever it is."""
    said = answer.headers
    assert said.get_list("Content-Security-Policy") == [POLICY], answer.url
    for forbidden in ("unsafe-inline", "unsafe-eval", "*", "http:", "https:"):
        assert forbidden not in POLICY
    assert said["X-Content-Type-Options"] == "nosniff"
    assert said["X-Frame-Options"] == "DENY"
    assert said["Referrer-Policy"] == "same-origin"
    assert said["Cross-Origin-Opener-Policy"] == "same-origin"
    assert said["Cache-Control"] == (IMMUTABLE if _is_file(answer) else "no-store"), answer.url
    assert said["X-Request-Id"]
    for cookie in said.get_list("Set-Cookie"):
        assert "Path=/" in cookie


def _is_file(answer: httpx.Response) -> bool:
    return "/static/" in answer.url.path and answer.status_code == 200


def check_page(page: Page) -> None:
    """Nothing in a page runs by itself, and nothing is loaded from elsewhere."""
    assert not page.inline, page.inline
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (page.url, tag, name, value)
        assert name != "style", (page.url, tag, value)
        assert tag not in ("iframe", "object", "embed", "base", "style"), (page.url, tag)
        if name in _LEADING:
            assert not urlsplit(value).scheme, (page.url, tag, name, value)
            assert not value.startswith(("//", "/", "\\")), (page.url, tag, name, value)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), (page.url, ids)
    check_headers(page.answer)


async def crawl(browser: Browser, *, begin: str = "", most: int = 300) -> dict[str, Page]:
    """All pages that can be reached from the root, by address; each answers as it should."""
    found: dict[str, Page] = {}
    knocked: set[str] = set()
    left = deque([urljoin(browser.root, begin)])
    while left:
        url = left.popleft()
        if url in found:
            continue
        assert url.startswith(browser.root), f"{url} is not below {browser.root}"
        found[url] = page = await browser.get(url)
        assert page.status == 200, f"{url}: {page.status} {page.said}"
        for each in page.answer.history:
            check_headers(each)
        assert page.url.startswith(browser.root)
        check_page(page)
        left += page.links
        await _loaded(browser, page, found)
        left += await _knocked(browser, page, knocked)
        assert len(found) < most, sorted(found)
    return found


async def _loaded(browser: Browser, page: Page, found: dict[str, Page]) -> None:
    """Load what a page loads: its styles and scripts."""
    for url in page.assets:
        if url in found:
            continue
        assert url.startswith(browser.root), url
        found[url] = loaded = await browser.get(url)
        assert loaded.status == 200, url
        assert loaded.answer.headers["Cache-Control"] == IMMUTABLE
        check_headers(loaded.answer)
        if url.endswith(".css"):
            assert not _STYLED.search(loaded.html)


async def _knocked(browser: Browser, page: Page, knocked: set[str]) -> list[str]:
    """Follow the actions of forms: those that ask are sent, those that change without their proof."""
    following = []
    for form in page.forms:
        assert form.action.startswith(browser.root), form.action
        if not form.is_post:
            asked = f"{form.action.split('?')[0]}?{urlencode(form.fields)}"
            if asked not in knocked:
                knocked.add(asked)
                following.append(asked)
        elif form.action not in knocked:
            knocked.add(form.action)
            assert form.fields["form_proof"]
            answer = await browser.http.post(form.action, data={**form.fields, "form_proof": ""})
            assert answer.status_code == 403, f"{form.action}: {answer.status_code}"
            check_headers(answer)
    return following
