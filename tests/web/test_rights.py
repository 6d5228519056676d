"""Who sees what, and who may change it.

Rule: every route of the console is asked here; one that is new is asked without being named.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from progressor import Client
from progressor.rights import Scope
from progressor.web.app import make_console
from progressor.web.page import ConsolePage
from tests.open_access import OpenAccess
from tests.web.conftest import MARK, World
from tests.web.crawling import check_page, crawl
from tests.web.orders import HIDDEN, SEEN
from tests.web.reading import Browser, Form

ROUTES = [
    each
    for each in make_console(Client("postgresql://nowhere"), access=OpenAccess()).routes
    if isinstance(each, ConsolePage)
]
FORMS = [each for each in ROUTES if each.changes_processes]
PAGES = [each for each in ROUTES if not each.is_form and each.scope is not None]
READS = (Scope.PROCESSES_READ, Scope.STATE_READ, Scope.ERRORS_READ, Scope.AUDIT_READ)
FAILURES = ("failure of order", "RuntimeError", "the sink refuses")
STATES = ("tea-1", "event tea", "response tea", "asked", '"paid"')
# Whatever a form may ask for, so that none is refused for what it lacks.
FIELDS = {
    "name": "pay",
    "args": '{"amount": 1}',
    "task_id": "1",
    "timer": "lapse",
    "how": "trigger",
    "action": "retry",
    "number": "1",
    "namespace": SEEN,
    "confirm": "order-1",
    "reason": "none",
}


def filled(route: ConsolePage, namespace: str = SEEN, process_id: str = "order-1") -> str:
    """An address of a route."""
    path = route.path.format(namespace=namespace, process_id=process_id, bulk_id=1, name="nightly")
    query = f"?namespace={namespace}" if route.path in ("/bulk/new", "/broken/group") else ""
    return path.removeprefix("/") + query


def ids(route: ConsolePage) -> str:
    return route.path


def everything(dsn: str) -> dict[str, Any]:
    """All that stands in the tables, but for what moves by itself."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        names = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'progressor' "
            "AND table_type = 'BASE TABLE' ORDER BY 1"
        ).fetchall()
        return {
            name: connection.execute(
                sql.SQL("SELECT md5(t::text) FROM {} AS t ORDER BY 1").format(
                    sql.Identifier("progressor", name)
                )
            ).fetchall()
            for (name,) in names
            if name not in ("tokens", "workers", "subscription_readers", "namespaces")
        } | {
            "paused": connection.execute(
                "SELECT name, paused FROM progressor.namespaces ORDER BY 1"
            ).fetchall()
        }


async def posted(browser: Browser, path: str, **fields: str) -> int:
    """The status of a form that has the proof of the browser's own pages."""
    proof = (await browser.get("settings")).form("sign-out").fields["form_proof"]
    form = Form(browser.root + path, "post", {**FIELDS, **fields, "form_proof": proof})
    page = await browser.send(form)
    if page.status >= 400:
        check_page(page)
    return page.status


@pytest.mark.parametrize("route", FORMS, ids=ids)
async def test_who_may_only_read_changes_nothing(world: World, route: ConsolePage) -> None:
    """Nor who has every scope but one, nor who has all elsewhere; and nobody learns why."""
    assert route.scope is not None
    reader = await world.caller(Scope.PROCESSES_READ)
    others = await world.caller(*(each for each in Scope if each is not route.scope))
    elsewhere = await world.caller("all", namespaces=["elsewhere"])
    nobody = await world.browser(world.guarded)
    before = everything(world.dsn)
    for caller in (reader, others):
        assert await posted(caller, filled(route)) == 403
    assert await posted(elsewhere, filled(route)) in (403, 404)
    await nobody.get("sign-in")
    proof = (await nobody.get("sign-in")).form("/sign-in").fields["form_proof"]
    form = Form(nobody.root + filled(route), "post", {**FIELDS, "form_proof": proof})
    assert (await nobody.send(form)).status == 401
    assert everything(world.dsn) == before


@pytest.mark.parametrize("route", PAGES, ids=ids)
async def test_a_page_needs_its_scope(world: World, route: ConsolePage) -> None:
    """All others together will not do, nor all of them elsewhere; its own will."""
    assert route.scope is not None
    others = await world.caller(*(each for each in Scope if each is not route.scope))
    page = await others.get(filled(route))
    assert page.status == 403
    assert route.scope in page.said
    if "{namespace}" in route.path or "?" in filled(route):
        elsewhere = await world.caller("all", namespaces=["elsewhere"])
        assert (await elsewhere.get(filled(route))).status == 403
    own = await world.caller(route.scope, Scope.PROCESSES_READ)
    # A stream has no end: its head says as much.
    assert (await own.http.head(filled(route))).status_code == 200
    nobody = await world.browser(world.guarded)
    assert (await nobody.get(filled(route))).url.startswith(f"{nobody.root}sign-in?back=")


def test_nothing_is_for_everybody_but_the_session() -> None:
    """The pages without a scope are listed here: one more is a decision."""
    free = {(each.path, each.is_form, each.is_public) for each in ROUTES if each.scope is None}
    assert free == {
        ("/sign-in", False, True),
        ("/sign-in", True, True),
        ("/sign-out", True, True),
        ("/settings", False, False),
        ("/settings", True, False),
    }


async def test_hidden_namespaces_leave_no_trace(world: World) -> None:
    """No name, no id, no text, on any page that its caller can reach; and no link leads into a wall."""
    caller = await world.caller("all", namespaces=["a.*"])
    found = await crawl(caller)
    assert f"{caller.root}processes/{SEEN}/order-1" in found
    assert f"{caller.root}bulk/1" in found
    for url, page in found.items():
        assert HIDDEN not in page.html, url
        assert MARK not in page.html, url


WALLS = [
    f"processes?namespace={HIDDEN}",
    f"broken?namespace={HIDDEN}",
    f"audit?namespace={HIDDEN}",
    f"bulk/new?namespace={HIDDEN}",
    f"namespaces/{HIDDEN}",
    f"load?namespace={HIDDEN}",
    f"processes/{HIDDEN}/{MARK}order-1",
    f"processes/{HIDDEN}/{MARK}order-1/value",
    f"processes/progressor.schedules/{HIDDEN}%2F{MARK}nightly",
    f"find?q={HIDDEN}/{MARK}order-1",
    "bulk/2",
    "system",
    "feed",
    "bulk/new",
]


async def test_hidden_namespaces_cannot_be_asked_for(world: World) -> None:
    """By no address: the answer is the same as for what there is not."""
    caller = await world.caller("all", namespaces=["a.*"])
    for path in WALLS:
        page = await caller.get(path)
        assert page.status in (403, 404), path
        assert "tea" not in page.said
        assert "failure" not in page.said
        unknown = await caller.get(_unknown(path))
        assert _unknown(page.said) == unknown.said


def _unknown(text: str) -> str:
    """A text with names that nobody has in the place of those that are hidden."""
    return (
        text.replace(HIDDEN, "b.unknown")
        .replace(MARK, "none")
        .replace("bulk 2", "bulk 7")
        .replace("bulk/2", "bulk/7")
    )


async def test_a_misspelt_namespace_names_no_hidden_one(world: World) -> None:
    """What is meant is said of those that the caller sees."""
    caller = await world.caller("all", namespaces=["b.xx", "a.*"])
    page = await caller.get("namespaces/b.xx")
    assert page.status == 404
    assert repr(HIDDEN) not in page.said
    page = await caller.get("namespaces/a.order")
    assert repr(SEEN) in page.said


async def test_forms_change_nothing_in_hidden_namespaces(world: World) -> None:
    """Whatever namespace, bulk or schedule a form names."""
    caller = await world.caller("all", namespaces=["a.*"])
    before = everything(world.dsn)
    for path, fields in (
        ("bulk", {"namespace": HIDDEN, "how": "simple"}),
        ("bulk/2/stop", {}),
        ("schedules", {"namespace": HIDDEN, "name": f"{MARK}nightly"}),
        (f"namespaces/{HIDDEN}/pause", {}),
        ("feed/parked", {"name": "books"}),
        (f"processes/{HIDDEN}/{MARK}order-1/remove", {"confirm": f"{MARK}order-1"}),
        (f"processes/progressor.schedules/{HIDDEN}%2F{MARK}nightly/call", {"name": "pause", "args": ""}),
    ):
        assert await posted(caller, path, **fields) in (403, 404), path
    assert everything(world.dsn) == before


async def test_what_a_scope_shows_is_shown_nowhere_without_it(world: World) -> None:
    """Failures, or states, events, arguments and answers; with the scopes they are there."""
    everybody = await world.caller("all")
    shown = "".join(page.said for page in (await crawl(everybody)).values())
    for missing, texts in ((Scope.ERRORS_READ, FAILURES), (Scope.STATE_READ, STATES)):
        caller = await world.caller(*(each for each in Scope if each is not missing))
        found = await crawl(caller)
        for text in texts:
            assert text in shown
            assert not [url for url, page in found.items() if text in page.said], text


async def test_a_failure_that_answers_a_form_needs_the_scope(served: World) -> None:
    """A call that fails, and one of a process that is broken."""
    caller = await served.caller(Scope.PROCESSES_READ, Scope.STATE_READ, Scope.PROCESSES_CALL)
    path = f"processes/{SEEN}/order-1"
    page = await caller.send((await caller.get(path)).form("/call", name="break"), "call", args='"x"')
    assert page.status == 500
    assert "failure" not in page.said
    again = await posted(caller, f"{path}/call", name="echo", how="call", key="other")
    assert again == 409
    everybody = await served.caller("all")
    proof = (await everybody.get(path)).form("/remove").fields["form_proof"]
    page = await everybody.send(
        Form(f"{everybody.root}{path}/call", "post", {"name": "echo", "form_proof": proof})
    )
    assert page.status == 409
    assert "failure x" in page.said


async def test_a_filter_on_failures_needs_the_scope_that_shows_them(world: World) -> None:
    """Else whoever may repair could find a message out letter by letter."""
    blind = await world.caller(*(each for each in Scope if each is not Scope.ERRORS_READ))
    assert (await blind.get(f"bulk/new?namespace={SEEN}&detail_like=%25f%25")).status == 403
    assert await posted(blind, "bulk", how="simple", detail_like="%f%") == 403
    assert (await blind.get(f"broken?namespace={SEEN}")).status == 403


async def test_a_bulk_that_redoes_needs_the_scope_to_call(world: World) -> None:
    """It runs calls again."""
    caller = await world.caller(Scope.PROCESSES_READ, Scope.BULK)
    page = await caller.get(f"bulk/new?namespace={SEEN}&handler=break")
    assert page.form("/bulk").is_post
    assert "redo" not in [value for _, name, value in page.attributes if name == "name"]
    assert await posted(caller, "bulk", how="simple", redo="on") == 403


async def test_a_timer_is_not_changed_by_a_call(world: World) -> None:
    """The calls that every namespace has need the scope of timers."""
    caller = await world.caller(Scope.PROCESSES_READ, Scope.PROCESSES_CALL)
    for name in ("progressor:unset_timer", " progressor:unset_timer "):
        status = await posted(
            caller, f"processes/{SEEN}/order-1/call", name=name, how="call", args='"lapse"'
        )
        assert status == 400
    assert "lapse" in (await world.client.get(SEEN, "order-1")).timers


async def test_forms_are_shown_to_those_who_may_send_them(world: World) -> None:
    """Of others no page has a form that changes anything."""
    caller = await world.caller(*READS)
    own = ("/settings", "/sign-out")
    for url, page in (await crawl(caller)).items():
        shown = [each.action for each in page.forms if each.is_post and not each.action.endswith(own)]
        assert not shown, url


async def test_a_console_that_only_reads(world: World) -> None:
    """Has no form that changes processes, whoever asks, and no address that takes one."""
    app = make_console(world.client, access=OpenAccess(), read_only=True)
    browser = await world.browser(app)
    before = everything(world.dsn)
    for url, page in (await crawl(browser)).items():
        shown = {each.action.removeprefix(browser.root) for each in page.forms if each.is_post}
        assert shown <= {"settings", "sign-out", "sign-in"}, url
    for route in FORMS:
        assert await posted(browser, filled(route)) in (404, 405)
    assert everything(world.dsn) == before
    assert {each.path for each in app.routes if getattr(each, "is_form", False)} == {
        "/settings",
        "/sign-in",
        "/sign-out",
    }
