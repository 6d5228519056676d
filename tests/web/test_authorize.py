"""The console in an application that knows its users."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from progressor.web import EVERYTHING, Principal, Rights, Scope, console
from tests.web.conftest import MARK, World
from tests.web.crawling import check_page, crawl
from tests.web.orders import HIDDEN, SEEN

PATH = f"processes/{SEEN}/order-1"
SOME = Rights(frozenset({Scope.PROCESSES_READ}), ("a.*",))


def mounted(world: World, authorize: Any, **options: Any) -> Starlette:
    """A host application with the console in it."""
    host = Starlette()
    host.mount("/progressor", console(world.client, authorize=authorize, **options))
    return host


def known(request: Request) -> Principal | None:
    """The user of whom the host knows by a header of its own."""
    name = request.headers.get("X-User")
    return None if name is None else Principal(name, EVERYTHING if name == "root" else SOME)


async def known_later(request: Request) -> Principal | None:
    """The same, when it was awaited."""
    return known(request)


@pytest.mark.parametrize("authorize", [known, known_later])
async def test_the_host_says_who_may_what(world: World, authorize: Any) -> None:
    """At each request, with a function of either kind."""
    browser = await world.browser(mounted(world, authorize), root="/progressor/")
    root = await browser.get(PATH, headers={"X-User": "root"})
    assert len(root.forms_to("/remove")) == 1
    anna = await browser.get(PATH, headers={"X-User": "anna"})
    assert (anna.status, anna.forms_to("/remove")) == (200, [])
    assert "tea-1" not in anna.said
    assert (
        await browser.get(f"processes/{HIDDEN}/{MARK}order-1", headers={"X-User": "anna"})
    ).status == 403
    refused = await browser.send(root.form("/remove"), confirm="order-1", headers={"X-User": "anna"})
    assert refused.status == 403
    gone = await browser.send(root.form("/remove"), confirm="order-1", headers={"X-User": "root"})
    assert gone.answer.history[0].status_code == 303
    (entry,) = (each for each in (await world.client.audit()).entries if each.verb == "remove")
    assert (entry.actor, entry.way) == ("root", "console")


@pytest.mark.parametrize("authorize", [known, known_later])
async def test_whom_the_host_does_not_know(world: World, authorize: Any) -> None:
    """Is refused, and no token helps: the console does not ask for one."""
    browser = await world.browser(
        mounted(world, authorize), root="/progressor/", token=await world.token("all")
    )
    for path in ("", PATH, "settings", "nowhere", "sign-in"):
        page = await browser.get(path)
        assert page.status == (404 if path in ("nowhere", "sign-in") else 401), path
        assert "order" not in page.said
        check_page(page)
    for path in (f"{PATH}/remove", "sign-in", "sign-out"):
        answer = await browser.http.post(path, data={"confirm": "order-1", "token": "x"})
        assert answer.status_code in (401, 404)
        assert "progressor_token" not in str(answer.headers)


async def test_a_host_that_fails_lets_nobody_in(world: World) -> None:
    """Its error is a defect, of which the page says nothing."""

    def failing(_: Request) -> Principal | None:
        raise LookupError("the users are away")

    browser = await world.browser(mounted(world, failing), root="/progressor/")
    page = await browser.get(PATH)
    assert page.status == 500
    assert "users" not in page.html


async def test_a_crawl_of_a_hosts_user(world: World) -> None:
    """Every link holds, and what is hidden is."""
    browser = await world.browser(mounted(world, known), root="/progressor/", headers={"X-User": "anna"})
    for url, page in (await crawl(browser)).items():
        assert MARK not in page.html, url
        assert "/sign-" not in page.html, url


async def test_a_mounted_console_that_only_reads(world: World) -> None:
    """For whoever asks."""
    browser = await world.browser(
        mounted(world, known, read_only=True), root="/progressor/", headers={"X-User": "root"}
    )
    page = await browser.get(PATH)
    assert [each.action for each in page.forms if each.is_post] == [f"{browser.root}settings"]
    assert (await browser.http.post(f"{PATH}/remove")).status_code in (404, 405)
