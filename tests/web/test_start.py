"""A process is started by the form that the published schema of its init asks for."""

from __future__ import annotations

from progressor.web.app import make_console
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.crawling import check_page
from tests.web.operators import Operator
from tests.web.orders import HIDDEN, SEEN
from tests.web.test_filters import wrong

NEW = f"processes/new?namespace={SEEN}"


async def test_a_process_is_started(operator: Operator) -> None:
    """From the search of its namespace to its page; sent twice, it is one."""
    page = await operator.get(f"processes?namespace={SEEN}")
    (link,) = (each for each in page.links if each.endswith(NEW))
    form = next(each for each in (await operator.get(link)).forms_to("/new") if each.is_post)
    assert {"process_id", "args.item", "metadata"} <= form.fields.keys()
    filled = {"process_id": "order-9", "args.item": "tea", "metadata": "plan=free"}
    for _ in range(2):
        page = await operator.send(form, **filled)
        assert page.note == "its init answered: response tea"
        assert page.url.endswith(f"processes/{SEEN}/order-9")
    found = await operator.world.client.get(SEEN, "order-9")
    assert (found.state["item"], found.metadata["plan"]) == ("tea", "pro")


async def test_a_start_that_is_refused(operator: Operator) -> None:
    """What was filled in is there again, with what is wrong beside its field."""
    form = next(each for each in (await operator.get(NEW)).forms_to("/new") if each.is_post)
    good = {"process_id": "order-9", "args.item": "tea", "metadata": "plan=free"}
    for name, text, said in (
        ("process_id", "", "Process id must have 1 to 256 characters"),
        ("args.item", "", "item is required"),
        ("metadata", "plan", "Metadata must be written as plan=pro"),
    ):
        given = {**good, name: text}
        page = await operator.browser.send(form, **given)
        assert page.status in (400, 422), name
        check_page(page)
        assert said in " ".join(page.said.split())
        (again,) = (each for each in page.forms_to("/new") if each.is_post)
        assert given.items() <= again.fields.items()
    page = await operator.browser.send(form, **{**good, "process_id": "order-1"})
    assert page.status == 409
    assert "order-1" in page.said
    page = await operator.browser.send(form, args='{"item": 1}', process_id="order-9")
    assert page.status == 422


async def test_the_namespace_is_asked_for_first(world: World) -> None:
    """One that is mistyped is named; those of the caller are offered."""
    browser = await world.caller("all")
    page = await browser.get("processes/new")
    assert not [each for each in page.forms_to("/new") if each.is_post]
    assert SEEN in page.options("namespaces")
    page = await browser.get("processes/new?namespace=a.oders")
    assert (page.status, wrong(page)) == (404, ["namespace"])


async def test_who_may_not_start_has_no_such_form(world: World) -> None:
    """Nor has a console that only reads; a hidden namespace is as one that there is not."""
    reading = await world.browser(make_console(world.client, access=OpenAccess(), read_only=True))
    assert not [each for each in (await reading.get("processes")).links if "new" in each]
    assert not (await reading.get(NEW)).forms_to("/new")
    caller = await world.caller("processes:read")
    assert not [each for each in (await caller.get("processes")).links if "new" in each]
    caller = await world.caller("all", namespaces=["a.*"])
    hidden = await caller.get(f"processes/new?namespace={HIDDEN}")
    unknown = await caller.get("processes/new?namespace=b.unknown")
    assert hidden.status == unknown.status == 403
    assert hidden.said.replace(HIDDEN, "b.unknown") == unknown.said
