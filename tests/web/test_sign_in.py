"""Sessions: a token signs a browser in, and nothing tells of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from progressor.http.server.auth.authenticator import AccessOptions, Authenticator
from progressor.http.server.options import HttpOptions
from progressor.rights import Bearer
from progressor.web import page as page_module
from progressor.web.app import make_console
from tests.http.test_tokens import Clock, clock
from tests.web.conftest import World
from tests.web.crawling import check_page, crawl
from tests.web.orders import SEEN
from tests.web.reading import Browser, Page

__all__ = ["clock"]

PATH = f"processes/{SEEN}/order-1"


async def signed_in(browser: Browser, token: str, back: str = "") -> Page:
    """What a browser gets for this token."""
    page = await browser.get(f"sign-in?back={quote(back, safe='')}")
    return await browser.send(page.form("/sign-in"), token=token)


def cookies(page: Page) -> list[str]:
    """The session cookies that an answer sets, with those of the redirects to it."""
    answers = [*page.answer.history, page.answer]
    set_now = [each for answer in answers for each in answer.headers.get_list("Set-Cookie")]
    return [each for each in set_now if each.startswith("progressor_token=")]


async def test_a_token_signs_in(world: World) -> None:
    """It is kept where no script reads it; it leads to the page that was asked for; sign-out forgets it."""
    token = await world.token("all")
    browser = await world.browser(world.guarded)
    asked = await browser.get(f"{PATH}?view=history")
    assert asked.url.startswith(f"{browser.root}sign-in?")
    page = await browser.send(asked.form("/sign-in"), token=f" {token} ")
    assert (page.status, page.url) == (200, f"{browser.root}{PATH}?view=history")
    (cookie,) = cookies(page)
    said = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax"} <= said
    assert "secure" not in said
    left = await browser.send((await browser.get("settings")).form("/sign-out"))
    assert left.note == "You are signed out."
    assert "progressor_token" not in browser.http.cookies
    assert (await browser.get(PATH)).url.startswith(f"{browser.root}sign-in")


WRONG = [
    "",
    "nonsense",
    "prg_",
    Bearer("0" * 16, "0" * 64).text,
    "two words",
    "ä",
    "a;b",
    "a\r\nb: c",
    "x" * 100_000,
]


async def test_a_wrong_token_is_refused(world: World) -> None:
    """With 401, no cookie, and without saying what was typed."""
    await world.token("all")
    browser = await world.browser(world.guarded)
    for token in WRONG:
        page = await signed_in(browser, token, back=PATH)
        assert page.status == 401, token
        assert not cookies(page)
        assert len(token) < 5 or token not in page.html
        assert page.form("/sign-in").fields["back"] == PATH
        check_page(page)


@pytest.mark.parametrize("forwarded", ["https", "HTTPS", "https, http", " https ,http"])
async def test_over_https_the_cookies_are_of_https(world: World, forwarded: str) -> None:
    """With this server, or with a proxy in front of it, or several: the first is that of the browser."""
    token = await world.token("all")
    browser = await world.browser(world.guarded, headers={"X-Forwarded-Proto": forwarded})
    await browser.get("sign-in")
    page = await browser.get("sign-in")
    assert all("Secure" in each for each in page.answer.headers.get_list("Set-Cookie"))
    data = {"token": token, "form_proof": page.form("/sign-in").fields["form_proof"]}
    secret = browser.http.cookies.jar
    kept = "; ".join(f"{each.name}={each.value}" for each in secret)
    answer = await browser.http.post("sign-in", data=data, headers={"Cookie": kept}, follow_redirects=False)
    (cookie,) = (each for each in answer.headers.get_list("Set-Cookie") if "progressor_token" in each)
    assert "Secure" in cookie


class Stalled:
    """A form of a stranger that begins, and does not come."""

    def __init__(self, app: Any) -> None:
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self._begun = asyncio.Event()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/x-www-form-urlencoded")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/sign-in",
            "raw_path": b"/sign-in",
            "query_string": b"",
            "headers": [*headers, (b"content-length", b"1000")],
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "http_version": "1.1",
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._begun.is_set():
            await asyncio.Event().wait()
        self._begun.set()
        return {"type": "http.request", "body": b"a", "more_body": True}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])

    async def begun(self) -> None:
        """Wait until its first byte is read, or it is refused."""
        waits = asyncio.ensure_future(self._begun.wait())
        await asyncio.wait((self.task, waits), timeout=20, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()


async def test_a_form_that_does_not_come_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is free again, and its connection is closed."""
    monkeypatch.setattr(page_module, "_FORM_SECONDS", 0.05)
    form = Stalled(world.guarded)
    await asyncio.wait_for(form.task, 20)
    assert (form.status, form.headers[b"connection"]) == (408, b"close")


async def test_strangers_leave_places_to_those_who_are_signed_in(world: World) -> None:
    """However many forms they begin, nearly half of the places are for others."""
    app = make_console(
        world.client,
        access=Authenticator(world.client.tokens, AccessOptions()),
        options=HttpOptions(max_requests=8),
    )
    forms = [Stalled(app) for _ in range(8)]
    for form in forms:
        await form.begun()
    refused = [form.status for form in forms if form.task.done()]
    assert refused == [429] * 3
    token = await world.token("all")
    browser = await world.browser(app, headers={"Authorization": f"Bearer {token}"})
    assert (await browser.get("")).status == 200
    for form in forms:
        form.task.cancel()
    await asyncio.gather(*(form.task for form in forms), return_exceptions=True)


ELSEWHERE = [
    "//evil.example",
    "https://evil.example",
    "https:evil.example",
    "javascript:alert(1)",
    "/\\evil.example",
    "\\\\evil.example",
    "/evil",
    "..",
    "../..",
    "a/../../..",
    "a/..",
    "%2e%2e",
    "%2e%2e/%2E%2E/x",
    ".%2e/x",
    "processes/%2e%2e/%2e%2e/x",
    ".",
    "./x",
    "x//evil",
    "x\r\nSet-Cookie: a=b",
    "\t//evil.example",
    " //evil.example",
    "é",
]


async def test_the_way_back_stays_here(world: World) -> None:
    """After a sign-in, and after a choice of settings: else it leads to a page of the console."""
    browser = await world.browser(world.guarded)
    token = await world.token("all")
    sign_in = (await browser.get("sign-in")).form("/sign-in")
    await browser.send(sign_in, token=token)
    settings = (await browser.get("settings")).forms_to("/settings")[1]
    for back in ELSEWHERE:
        page = await browser.send(sign_in, token=token, back=back, follow=False)
        assert page.answer.headers["Location"] == "./", back
        assert "a=b" not in str(page.answer.headers)
        page = await browser.send(settings, back=back, follow=False)
        assert page.answer.headers["Location"] == "./settings", back


async def test_the_way_back_leads_to_the_page(world: World) -> None:
    """That was asked for."""
    browser, token = await world.browser(world.guarded), await world.token("all")
    for back in ("", PATH, f"{PATH}?view=history&before=3", "processes?metadata=a%3Db"):
        page = await signed_in(browser, token, back=back)
        assert page.url == browser.root + back


async def test_a_revoked_token_leads_to_the_sign_in(world: World, clock: Clock) -> None:
    """At the next request after the time for which tokens are kept; a form is refused."""
    found, bearer = await world.client.tokens.create(
        "test", scopes=["all"], namespaces=["*"], lifetime=None
    )
    browser = await world.browser(world.guarded)
    page = await signed_in(browser, bearer.text, back=PATH)
    await world.client.tokens.revoke(found.token_id)
    clock.offset += AccessOptions().token_kept_for.total_seconds()
    refused = await browser.send(page.form("/remove"), confirm="order-1")
    assert refused.status == 401
    assert (await browser.get(PATH)).url.startswith(f"{browser.root}sign-in")
    assert (await world.client.get(SEEN, "order-1")).status == "running"


async def test_a_header_counts_more_than_a_cookie(world: World) -> None:
    """What a proxy in front says of its user is not replaced by an older session."""
    browser = await world.caller("all")
    reads = await world.token("processes:read")
    said = {"Authorization": f"Bearer {reads}"}
    assert (await browser.get(PATH)).forms_to("/remove")
    assert not (await browser.get(PATH, headers=said)).forms_to("/remove")


async def test_open_on_this_machine_until_there_is_a_token(world: World, clock: Clock) -> None:
    """For its own names, and for nobody whom a proxy forwards."""
    access = Authenticator(world.client.tokens, AccessOptions())
    await access.begin("127.0.0.1")
    browser = await world.browser(make_console(world.client, access=access))
    page = await browser.get(PATH)
    assert (page.status, page.url) == (200, browser.root + PATH)
    assert len(page.forms_to("/remove")) == 1
    for name, value in (
        ("Host", "evil.example"),
        ("Host", "localhost.evil.example"),
        ("Host", "["),
        ("X-Forwarded-For", "203.0.113.7"),
        ("Forwarded", "for=203.0.113.7"),
        ("Via", "1.1 proxy"),
        ("Origin", "https://evil.example"),
        ("Sec-Fetch-Site", "cross-site"),
    ):
        refused = await browser.get(PATH, headers={name: value})
        assert refused.status == 403, (name, value)
        assert "order-1" not in refused.html.replace(PATH, "")
        form = page.form("/remove")
        refused = await browser.send(form, confirm="order-1", headers={name: value})
        assert refused.status == 403, (name, value)
    await world.token("processes:read")
    clock.offset += AccessOptions().token_kept_for.total_seconds()
    assert (await browser.get(PATH)).url.startswith(f"{browser.root}sign-in")


async def test_the_token_stands_nowhere(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in a page, nor in the log, nor in the audit: none that holds, and none that does not."""
    caplog.set_level(logging.DEBUG)
    token, wrong = await world.token("all"), Bearer.drawn()
    browser = await world.browser(world.guarded)
    pages = [await signed_in(browser, wrong.text), await signed_in(browser, token)]
    form = (await browser.get(f"namespaces/{SEEN}")).form("/pause")
    pages += [await browser.send(form, reason="why"), *(await crawl(browser)).values()]
    said = [
        *(each.html for each in pages),
        *(str(answer.headers.get("Location")) for each in pages for answer in each.answer.history),
        *(repr(vars(each)) for each in caplog.records),
        *(repr(each) for each in (await world.client.audit()).entries),
    ]
    assert any(each.actor.startswith("token ") for each in (await world.client.audit()).entries)
    for text in (token, token.rpartition("_")[2], wrong.secret):
        assert not [each for each in said if text in each]


async def test_each_caller_has_its_rate(world: World) -> None:
    """Who asks too often is told so, by a page."""
    from progressor.http.server.auth.rate_limit import CallerRate  # noqa: PLC0415 - of this test alone

    access = Authenticator(world.client.tokens, AccessOptions(rate=CallerRate(0.001, 2)))
    browser = await world.caller("all", app=make_console(world.client, access=access))
    answers: list[httpx.Response] = [(await browser.get(PATH)).answer for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
