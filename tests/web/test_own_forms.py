"""A form counts only from a page of this console, once, and if it can be read."""

from __future__ import annotations

from typing import Any

import pytest

from progressor import Client
from progressor.web.app import make_console
from progressor.web.page import ConsolePage
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.crawling import check_page
from tests.web.orders import SEEN
from tests.web.reading import Browser, Page, read
from tests.web.test_rights import FIELDS, everything, filled

PATH = f"processes/{SEEN}/order-1"
ROUTES = [
    each
    for each in make_console(Client("postgresql://nowhere"), access=OpenAccess()).routes
    if isinstance(each, ConsolePage) and each.is_form
]


async def proof_of(browser: Browser) -> str:
    """The proof that the pages of this browser hold."""
    return (await browser.get(PATH)).form("/remove").fields["form_proof"]


async def posted(browser: Browser, path: str, fields: dict[str, str] | None = None, **options: Any) -> Page:
    """The answer to these fields."""
    given = {**FIELDS, **(fields or {})}
    return read(await browser.http.post(browser.root + path, data=given, **options))


@pytest.mark.parametrize("route", ROUTES, ids=lambda each: each.path)
async def test_no_other_page_can_send_it(world: World, route: ConsolePage) -> None:
    """Without the proof, with one of another browser, of another site, from another origin: refused."""
    browser, other = await world.browser(), await world.browser()
    proof, foreign = await proof_of(browser), await proof_of(other)
    path, own = filled(route), {"form_proof": proof}
    before = everything(world.dsn)
    for fields in ({}, {"form_proof": ""}, {"form_proof": foreign}, {"form_proof": proof + "é"}):
        assert (await posted(browser, path, fields)).status == 403
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
    ):
        page = await posted(browser, path, own, headers=headers)
        assert page.status == 403, headers
        check_page(page)
    browser.http.cookies.delete("progressor_form")
    assert (await posted(browser, path, own)).status == 403
    assert everything(world.dsn) == before


async def test_a_cookie_without_a_secret_is_none(world: World) -> None:
    """Its proof could be known to anybody: another one is given, and with that forms work."""
    browser = await world.browser()
    cookie = {"Cookie": "progressor_form="}
    page = read(await browser.http.get(PATH, headers=cookie))
    assert any(each.startswith("progressor_form=") for each in page.answer.headers.get_list("Set-Cookie"))
    from progressor.web.session import proof_of as proof_for  # noqa: PLC0415 - what an attacker computes

    forged = {**FIELDS, "form_proof": proof_for("")}
    answer = await browser.http.post(f"{PATH}/remove", data=forged, headers=cookie)
    assert answer.status_code == 403


async def test_a_page_of_this_console_can(served: World) -> None:
    """Whatever the browser says of it, if that is true."""
    browser = await served.browser()
    for headers in (
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"},
    ):
        form = (await browser.get(PATH)).form("/call", name="pay")
        page = await browser.send(form, "call", args='{"amount": 1}', headers=headers)
        assert page.status == 200
    assert (await served.client.get(SEEN, "order-1")).state["paid"] == 10


async def test_what_is_sent_twice_is_done_once(served: World) -> None:
    """A call, a notice, a repair, a bulk, a schedule: the second form does nothing."""
    browser = await served.browser()
    form = (await browser.get(PATH)).form("/call", name="pay")
    for _ in range(2):
        page = await browser.send(form, "call", args='{"amount": 7}')
        assert page.note == "pay answered: 12"
    form = (await browser.get(f"processes/{SEEN}/order-2")).form("/repair", "simple")
    for _ in range(2):
        assert (await browser.send(form, "simple")).status == 200
    form = (await browser.get("schedules")).forms_to("/schedules")[0]
    for _ in range(2):
        assert (await browser.send(form, "trigger")).status == 200
    form = (await browser.get(PATH)).forms_to("/timers")[0]
    for _ in range(2):
        assert (await browser.send(form, "fire")).status == 200
    form = (await browser.get(PATH)).forms_to("/redo")[0]
    for _ in range(2):
        page = await browser.send(form)
        assert page.status == 200, page.said
    acts = [each.verb for each in (await served.client.audit()).entries if each.way == "console"]
    assert sorted(acts) == ["call", "fire_timer", "redo", "simple_repair", "trigger_schedule"]
    tasks = await served.client.trace(SEEN, "order-1")
    assert [each.name for each in tasks if each.name == "pay"].count("pay") == 3


async def test_a_bulk_that_is_sent_twice_is_one(served: World) -> None:
    """Both lead to it."""
    browser = await served.browser()
    form = (await browser.get(f"bulk/new?namespace={SEEN}&handler=break")).form("/bulk")
    first, second = await browser.send(form), await browser.send(form)
    assert (first.status, first.url) == (200, second.url)
    assert len(await served.client.bulks()) == 3


async def test_a_key_is_used_for_one_request(served: World) -> None:
    """Other arguments with it are refused, and nothing is done."""
    browser = await served.browser()
    form = (await browser.get(PATH)).form("/call", name="pay")
    await browser.send(form, "call", args='{"amount": 7}')
    page = await browser.send(form, "call", name="pay", args='{"amount": 8}')
    assert page.status == 422
    assert (await served.client.get(SEEN, "order-1")).state["paid"] == 12


@pytest.mark.parametrize("path", [f"{PATH}/call", "sign-in"])
async def test_a_form_has_an_end(world: World, path: str) -> None:
    """Longer ones, and those of more fields than any page has, are refused."""
    browser = await world.browser()
    proof = await proof_of(browser)
    page = await posted(browser, path, {"args": "x" * (1 << 20), "form_proof": proof})
    assert page.status == 413
    check_page(page)
    many = {f"f{number}": "" for number in range(101)}
    assert (await posted(browser, path, {**many, "form_proof": proof})).status == 400
    fits = await posted(browser, path, {"args": "x" * 1_000_000, "form_proof": proof})
    assert fits.status in (401, 422)
    assert "bytes" not in fits.said


async def test_what_is_no_text_is_refused(world: World) -> None:
    """With a page, and nothing of it is done."""
    browser = await world.browser()
    proof = (await proof_of(browser)).encode()
    typed = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"\xff", b"args=%ff", b"args=%C3%28", b"a=\xed\xa0\x80"):
        data = body + b"&form_proof=" + proof
        answer = await browser.http.post(f"{PATH}/call", content=data, headers=typed)
        assert answer.status_code == 400, body
        check_page(read(answer))


async def test_another_encoding_has_no_proof(world: World) -> None:
    """JSON and multipart forms are none of this console."""
    browser = await world.browser()
    fields = {**FIELDS, "form_proof": await proof_of(browser)}
    answer = await browser.http.post(f"{PATH}/remove", json=fields)
    assert answer.status_code == 403
    answer = await browser.http.post(f"{PATH}/remove", data=fields, files={"f": b"x"})
    assert answer.status_code == 403


WRONG_FORMS = [
    (f"{PATH}/call", {"name": ""}),
    (f"{PATH}/call", {"name": "progressor:fire_timer"}),
    (f"{PATH}/call", {"args": "{"}),
    (f"{PATH}/call", {"args": "[" * 5000}),
    (f"{PATH}/call", {"args": '{"amount": -1}'}),
    (f"{PATH}/call", {"args": "1" * 5000}),
    (f"{PATH}/call", {"name": "echo", "how": "call", "args": '"\\ud800"'}),
    (f"{PATH}/call", {"name": "\0"}),
    (f"{PATH}/call", {"name": "x" * 300}),
    (f"{PATH}/call", {"how": "call", "key": "x" * 300}),
    (f"{PATH}/call", {"how": "call", "key": "progressor:mine"}),
    (f"{PATH}/call", {"reason": "a\nb"}),
    (f"{PATH}/call", {"reason": "x" * 5000}),
    (f"{PATH}/repair", {"args": '{"item": 1}'}),
    (f"{PATH}/redo", {"task_id": "-1"}),
    (f"{PATH}/redo", {"task_id": ""}),
    (f"{PATH}/redo", {"task_id": "9" * 19}),
    (f"{PATH}/redo", {"task_id": "9" * 5000}),
    (f"{PATH}/redo", {"task_id": "٣"}),
    (f"{PATH}/timers", {"timer": "\0"}),
    (f"{PATH}/timers", {"timer": "x" * 300, "how": "fire"}),
    (f"{PATH}/remove", {"confirm": "order-2"}),
    (f"{PATH}/remove", {"confirm": ""}),
    ("feed/parked", {"number": "9" * 30}),
    ("feed/parked", {"number": ""}),
    ("feed/parked", {"number": "", "action": "skip"}),
    ("feed/parked", {"name": ""}),
    ("feed/parked", {"name": "nobody"}),
    ("bulk", {"rate": "nan"}),
    ("bulk", {"rate": "inf"}),
    ("bulk", {"rate": "1e400"}),
    ("bulk", {"rate": "-1"}),
    ("bulk", {"rate": "fast"}),
    ("bulk", {"namespace": ""}),
    ("bulk", {"namespace": "a/b"}),
    ("bulk", {"how": "handler", "args": "{"}),
    ("bulk", {"detail_like": "\0"}),
    ("bulk", {"detail_like": "x" * 100_000}),
    ("bulk", {"handler": "\0"}),
    ("schedules", {"how": "remove"}),
    ("schedules", {"how": "pause", "name": "\0"}),
    ("schedules", {"how": "pause", "name": "x" * 300}),
    ("settings", {"zone": "Mars/Base"}),
    ("settings", {"theme": "x; Path=/evil"}),
    ("settings", {"live": "€"}),
    ("settings", {"live": "x" * 5000}),
]


async def test_what_breaks_a_rule_is_refused(world: World) -> None:
    """With a page that says so, and nothing is done: never a defect."""
    browser = await world.browser()
    before = everything(world.dsn)
    proof = await proof_of(browser)
    for path, fields in WRONG_FORMS:
        page = await posted(browser, path, {**fields, "form_proof": proof})
        assert page.status in (400, 404, 422), (path, fields, page.said)
        check_page(page)
    assert everything(world.dsn) == before


WRONG_ADDRESSES = [
    f"{PATH}?before=999999999999999999999",
    f"{PATH}?before=1000000000000000000000",
    f"{PATH}?before={'9' * 5000}",
    f"{PATH}?before=-1",
    f"{PATH}?before=",
    f"{PATH}?before=%D9%A3",
    f"{PATH}?view=nothing",
    f"{PATH}?view=history&before=9223372036854775808",
    "processes?cursor=rubbish",
    "processes?cursor=%FF%00",
    "processes?cursor=eyJhIjogMX0=",
    "processes?status=nothing",
    "processes?timer=~nothing",
    "processes?namespace=a%2Fb",
    "processes?namespace=%00",
    "processes?namespace=nowhere",
    "processes?metadata=nothing",
    "processes?metadata=%7B",
    "processes?metadata=%7B%22a%22%3A%22%5Cu0000%22%7D",
    "processes?metadata=a%3D%00",
    "processes?since=nothing",
    "processes?since=%D9%A3h",
    "processes?since=99999999999999999999h",
    "processes?since=-1",
    "processes?since=0001-01-01T00:00:00%2B14:00",
    "broken?since=99999999999999999999h",
    "broken?since=nothing",
    "broken?namespace=a%2Fb",
    "broken?namespace=nowhere",
    "audit?cursor=rubbish",
    "audit?verb=nothing",
    "audit?namespace=a%2Fb",
    "audit?process_id=%00",
    "audit?since=99999999999999999999h",
    "feed?after=-1",
    "feed?after=",
    f"feed?after={'9' * 5000}",
    "feed?after=9223372036854775808",
    "schedules?cursor=rubbish",
    "bulk/0",
    "bulk/nothing",
    f"bulk/{'9' * 19}",
    f"bulk/{'9' * 5000}",
    "bulk/9223372036854775807",
    "bulk/new",
    "bulk/new?namespace=nowhere",
    "bulk/new?namespace=a%2Fb",
    f"bulk/new?namespace={SEEN}&detail_like=%00",
    f"bulk/new?namespace={SEEN}&handler={'x' * 300}",
    "namespaces/nowhere",
    "namespaces/%00",
    "namespaces/a%2Fb",
    "namespaces/%FF",
    "namespaces/~",
    "processes/a.orders/%00",
    "processes/a.orders/%FF",
    "processes/a.orders/~~",
    f"processes/a.orders/{'x' * 300}",
    "find?q=%00/%00",
    "find?q=a/b",
    f"find?q={'x' * 300}/y",
]


async def test_an_address_that_is_wrong_is_named(world: World) -> None:
    """By a page, never a defect."""
    browser = await world.browser()
    for path in WRONG_ADDRESSES:
        page = await browser.get(path)
        assert page.status in (400, 404), (path, page.status, page.said)
        check_page(page)


ODD_ADDRESSES = [
    "processes?since=999999d",
    "processes?since=99999h",
    "processes?since=2026-01-01T00:00:00Z",
    "broken?since=999999d",
    "audit?since=999999d",
    "find?q=",
    "find?q=/",
    f"find?q={SEEN}",
    f"find?q={SEEN}/order-1",
    f"{PATH}?before=9223372036854775807",
    f"{PATH}?view=history&before=1",
    "?a=b&a=c",
    "processes?metadata=%7B%22a%22%3A1%7D",
    "processes?&&&=&%",
]


async def test_an_odd_address_that_is_right(world: World) -> None:
    """Is answered."""
    browser = await world.browser()
    for path in ODD_ADDRESSES:
        page = await browser.get(path)
        assert page.status == 200, (path, page.said)
        check_page(page)


ODD_HEADERS = [
    {"Cookie": "progressor_zone=Mars/Base; progressor_theme=x; progressor_live=%00"},
    {"Cookie": 'progressor_zone="../../etc/passwd"; progressor_theme="\\"><script>"'},
    {"Cookie": "progressor_zone=\xff; progressor_form=\xff; progressor_note=\xff%FF%00"},
    {"Cookie": "progressor_note=" + "%3Cscript%3E" * 200},
    {"Cookie": "progressor_note=a%0D%0ASet-Cookie:%20b=c"},
    {"Cookie": ";;;=;a"},
    {"Host": "["},
    {"Host": "a b"},
    {"Host": ""},
    {"X-Forwarded-Proto": "nothing"},
    {"Accept": "application/json"},
]


async def test_odd_headers_are_ignored(world: World) -> None:
    """A page is a page."""
    browser = await world.browser()
    for headers in ODD_HEADERS:
        coded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        page = read(await browser.http.get(PATH, headers=coded))
        assert page.status == 200, headers
        check_page(page)
        assert "progressor_note=a" not in str(page.answer.headers)
        assert page.attributes[1] == ("html", "data-theme", "auto")
