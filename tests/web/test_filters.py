"""Filters: one that was mistyped comes back as it was, and says at the field what is wrong."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from progressor.web.pages.namespaces import namespace as namespaces
from tests.web.conftest import World
from tests.web.crawling import check_page
from tests.web.orders import HIDDEN, SEEN
from tests.web.reading import Page

MISTYPED = [
    ("processes", "namespace=a+b&status=error", "namespace", 400),
    ("processes", "namespace=a.none&metadata=plan%3Dpro", "namespace", 404),
    ("processes", "metadata=pro&since=2d", "metadata", 400),
    ("processes", "metadata=%7B1&timer=held", "metadata", 400),
    ("processes", "since=soon", "since", 400),
    ("processes", "timer=~own", "timer", 400),
    ("broken", "namespace=a+b", "namespace", 400),
    ("broken", "since=soon", "since", 400),
    ("audit", "namespace=a+b&process_id=1", "namespace", 400),
    ("audit", "process_id=" + "x" * 300 + "&verb=pause", "process_id", 400),
    ("audit", "since=-1", "since", 400),
    ("bulk/new", f"namespace={SEEN}&handler=" + "x" * 300, "handler", 400),
    ("bulk/new", f"namespace={SEEN}&detail_like=" + "x" * 2000, "detail_like", 400),
]


def wrong(page: Page) -> list[str]:
    """The names of the fields that are marked as wrong, each of which is described."""
    described = {value for _, name, value in page.attributes if name == "aria-describedby"}
    marked = [at for at, (_, name, _) in enumerate(page.attributes) if name == "aria-invalid"]
    names = []
    for at in marked:
        before = [value for _, name, value in page.attributes[:at] if name == "name"]
        names.append(before[-1])
        assert f"about-{before[-1]}" in described
    return names


@pytest.mark.parametrize(("path", "query", "field", "status"), MISTYPED)
async def test_a_mistyped_filter(world: World, path: str, query: str, field: str, status: int) -> None:
    """The form is filled as it was, and the status is that of the error."""
    browser = await world.caller("all")
    page = await browser.get(f"{path}?{query}")
    assert page.status == status
    check_page(page)
    # What a new bulk is to repair is chosen in the form that begins it.
    action = path.removesuffix("/new")
    (form,) = (each for each in page.forms if each.action.endswith(action))
    assert form.is_post == (path == "bulk/new")
    assert dict(parse_qsl(query)).items() <= form.fields.items()
    assert wrong(page) == [field]
    assert "hx-get" not in {name for _, name, _ in page.attributes}
    assert "No process matches" not in page.said
    assert "Nothing is broken" not in page.said


@pytest.mark.parametrize("path", ["processes", "broken", "audit"])
async def test_a_filter_on_a_hidden_namespace(world: World, path: str) -> None:
    """It says no more than of one that there is not."""
    caller = await world.caller("all", namespaces=["a.*"])
    page, unknown = (
        await caller.get(f"{path}?namespace={HIDDEN}"),
        await caller.get(f"{path}?namespace=b.y"),
    )
    assert page.status == unknown.status == 403
    assert wrong(page) == ["namespace"]
    assert page.said.replace(HIDDEN, "b.y") == unknown.said


@pytest.mark.parametrize("path", ["processes", "broken", "audit"])
async def test_what_cannot_be_typed_is_said_above(world: World, path: str) -> None:
    """A choice of no list, or a place of no page."""
    browser = await world.caller("all")
    query = {"processes": "status=gone&cursor=x", "broken": "since=1e9999", "audit": "verb=gone"}[path]
    page = await browser.get(f"{path}?{query}")
    assert page.status == 400
    assert [each for each in page.forms if not each.is_post and each.action.endswith(path)]


async def test_the_methods_of_a_path_are_named(world: World) -> None:
    """A page and its form are routes of their own: the header has both."""
    browser = await world.browser()
    for path, allowed in (
        ("processes", "GET, HEAD"),
        ("schedules", "GET, HEAD, POST"),
        ("bulk/1/stop", "POST"),
        ("static/console.css", "GET, HEAD"),
        (f"processes/{SEEN}/order-1", "GET, HEAD"),
    ):
        answer = await browser.http.request("PUT", path)
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed), path
    assert "Allow" not in (await browser.get("nowhere")).answer.headers


def offered(page: Page) -> list[str]:
    """The names that the browser offers for the namespace."""
    listed = [value for tag, name, value in page.attributes if (tag, name) == ("input", "list")]
    assert listed[0] == "namespaces", listed
    assert ("datalist", "id", "namespaces") in page.attributes
    return page.options("namespaces")


@pytest.mark.parametrize(
    ("path", "scope"),
    [("processes", "processes:read"), ("broken", "errors:read"), ("audit", "audit:read")],
)
async def test_namespaces_are_offered(world: World, path: str, scope: str) -> None:
    """Those that the caller may see, and no others; a filter that was mistyped offers them too."""
    everybody, caller = (
        await world.caller("all"),
        await world.caller(scope, "processes:read", namespaces=["a.*"]),
    )
    assert {SEEN, HIDDEN} <= set(offered(await everybody.get(path)))
    for query in ("", f"?namespace={SEEN}", "?namespace=a.oders"):
        assert offered(await caller.get(path + query)) == ["a.idle", SEEN]


async def test_so_many_namespaces_are_offered_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page stays small, however many there are."""
    monkeypatch.setattr(namespaces, "_MOST_OFFERED", 1)
    assert len(offered(await (await world.browser()).get("processes"))) == 1


@pytest.mark.parametrize("text", ["order-1", HIDDEN, "x" * 300, "\x00"])
async def test_what_is_no_namespace_is_not_found(world: World, text: str) -> None:
    """The page says how a process is found, and of namespaces that are hidden no more than that."""
    browser = await world.caller("all", namespaces=["a.*"])
    page = await browser.get("find", params={"q": text})
    assert (page.status, page.url) == (200, f"{browser.root}processes")
    assert page.note is not None
    assert page.note.endswith("is no namespace. A process is found by NAMESPACE/PROCESS ID.")
