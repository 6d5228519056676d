"""Every form does what it says; the audit says who did it, and the next page what came of it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor import Engine, HandlerFailed, Namespace, Process, StorageUnavailable
from progressor.schedules import SCHEDULES
from progressor.web.pages import changes, schedules
from tests.acceptance.support import until
from tests.web.conftest import World
from tests.web.operators import Operator
from tests.web.orders import SEEN

ONE, TWO = f"processes/{SEEN}/order-1", f"processes/{SEEN}/order-2"
REASON = "as anna said"


async def test_call(operator: Operator) -> None:
    """The note has the answer; the audit has the call, with its reason and without what it was given."""
    page = await operator.get(ONE)
    page = await operator.send(page.form("/call", name="pay"), "call", args='{"amount": 7}', reason=REASON)
    assert page.note == "pay answered: 12"
    assert '"paid": 12' in page.said
    page = await operator.send(page.form("/call", name="echo"), "call")
    assert page.note == "echo is done."
    noted = [(each.verb, each.subject, each.detail, each.reason) for each in await operator.acts()]
    assert noted == [("call", "echo", None, None), ("call", "pay", None, REASON)]


async def test_a_call_that_is_refused(operator: Operator) -> None:
    """The page says why, and the process goes on."""
    page = await operator.get(ONE)
    refused = await operator.browser.send(page.form("/call", name="refuse"), "call")
    assert refused.status == 422
    assert "not today" in refused.said
    assert (await operator.world.client.get(SEEN, "order-1")).status == "running"


async def test_notify(operator: Operator) -> None:
    """It is accepted at once, and done."""
    page = await operator.get(ONE)
    page = await operator.send(page.form("/call", name="pay"), "notify", args='{"amount": 7}')
    assert page.note == "pay waits in the mailbox."

    client = operator.world.client
    await until(lambda: client.get(SEEN, "order-1"), lambda found: found.state["paid"] == 12)


async def test_repair(operator: Operator) -> None:
    """By the handler, with its arguments."""
    page = await operator.get(TWO)
    assert "failure of order 2" in page.said
    page = await operator.send(
        page.form("/repair", "handler"), "handler", args='{"item": "glue"}', reason=REASON
    )
    assert page.note == "repair answered: mended with glue"
    found = await operator.world.client.get(SEEN, "order-2")
    assert (found.status, found.state["mended"]) == ("running", "glue")
    await operator.only_act("repair", namespace=SEEN, process_id="order-2", reason=REASON)


async def test_a_dry_run(operator: Operator) -> None:
    """Its page shows what would change, and keeps what was filled in for the repair; nothing is changed."""
    page = await operator.get(TWO)
    page = await operator.browser.send(
        page.form("/repair", "handler"), "dry_run", args='{"item": "<glue>"}'
    )
    assert (page.status, page.note) == (200, None)
    assert "It would answer mended with <glue>." in page.said
    assert '-  "mended": ""' in page.said
    assert '+  "mended": "<glue>"' in page.said
    assert '"item": "<glue>"' in page.said
    found = await operator.world.client.get(SEEN, "order-2")
    assert (found.status, found.state["mended"]) == ("error", "")
    assert await operator.acts() == []
    page = await operator.send(page.form("/repair", "handler"), "handler")
    assert page.note == "repair answered: mended with <glue>"


async def test_simple_repair(operator: Operator) -> None:
    """No handler runs."""
    page = await operator.get(TWO)
    page = await operator.send(page.form("/repair", "simple"), "simple", reason=REASON)
    assert page.note == "It goes on as if nothing had broken it."
    found = await operator.world.client.get(SEEN, "order-2")
    assert (found.status, found.state["mended"]) == ("running", "")
    await operator.only_act("simple_repair", process_id="order-2", reason=REASON)


async def test_a_namespace_without_a_repair_handler(operator: Operator, stack: AsyncExitStack) -> None:
    """Neither the page of a broken process nor a bulk offers to run one; where there is one, both do."""
    world, bare = operator.world, Namespace("a.bare")

    @bare.init
    async def begin(process: Process) -> None:
        raise RuntimeError("broken at once")

    await stack.enter_async_context(Engine(world.dsn, [bare]))
    with pytest.raises(HandlerFailed):
        await world.client.start("a.bare", "one")
    for path in ("processes/a.bare/one", "bulk/new?namespace=a.bare"):
        page = await operator.get(path)
        assert "a.bare has no repair handler" in page.said
        assert "handler" not in [value for _, name, value in page.attributes if name == "value"]
    for path in (TWO, f"bulk/new?namespace={SEEN}"):
        page = await operator.get(path)
        assert "if it has one" not in page.said
        assert "un the repair handler" in page.said


async def test_redo(operator: Operator) -> None:
    """A call is run again, once: then its page says by which task."""
    page = await operator.get(ONE)
    (task,) = (each for each in await operator.world.client.trace(SEEN, "order-1") if each.name == "pay")
    (form,) = (each for each in page.forms_to("/redo") if each.fields["task_id"] == str(task.task_id))
    page = await operator.send(form)
    assert page.note == f"task {task.task_id}, run again, answered: 10"
    assert '"paid": 10' in page.said
    assert f"redoes {task.task_id}" in page.said
    assert str(task.task_id) not in [each.fields["task_id"] for each in page.forms_to("/redo")]


async def test_fire_a_timer(operator: Operator) -> None:
    """The one that is named, or the one without a name; the other stays."""
    client = operator.world.client
    for name in ("lapse", ""):
        page = await operator.get(ONE)
        form = page.form("/timers", "unset", timer=name)
        assert (await operator.send(form, "fire", reason=REASON)).note == "The timer is due now."
        await until(
            lambda: client.get(SEEN, "order-1"), lambda found, fired=name: fired not in found.timers
        )
    names = ["placed", "paid", "lapsed", "lapsed"]
    assert [each.name for each in (await client.get(SEEN, "order-1")).history] == names
    acts = await operator.acts()
    assert [(each.verb, each.process_id, each.reason) for each in acts] == [
        ("fire_timer", "order-1", REASON)
    ] * 2


async def test_cancel_a_timer(operator: Operator) -> None:
    """It never fires."""
    page = await operator.get(ONE)
    page = await operator.send(page.form("/timers", "unset", timer="lapse"), "unset", reason=REASON)
    assert page.note == "The timer is cancelled."
    found = await operator.world.client.get(SEEN, "order-1")
    assert (set(found.timers), len(found.history)) == ({""}, 2)
    await operator.only_act("unset_timer", namespace=SEEN, process_id="order-1", reason=REASON)


async def test_what_a_recurring_timer_was_set_by(operator: Operator) -> None:
    """The line of its task tells the rule; all that is stored stands below it."""
    client = operator.world.client
    await client.set_timer(SEEN, "order-1", "lapse", every=timedelta(days=2))
    page = await operator.get(ONE)
    assert "<summary>every 172800 s</summary>" in page.html


async def test_set_a_timer(operator: Operator) -> None:
    """After a time, or at one of the browser's zone; one of the name is replaced."""
    client, browser = operator.world.client, operator.browser
    await browser.send((await browser.get("settings")).forms_to("/settings")[1], zone="Asia/Kathmandu")
    before = (await client.get(SEEN, "order-1")).timers["lapse"].due
    page = await operator.get(ONE)
    page = await operator.send(
        page.form("/timers", "set"), "set", timer="lapse", after="90d", reason=REASON
    )
    assert page.note == "The timer is set."
    assert (await client.get(SEEN, "order-1")).timers["lapse"].due > before + timedelta(days=30)
    await operator.only_act("set_timer", namespace=SEEN, process_id="order-1", reason=REASON)
    await operator.send(page.form("/timers", "set"), "set", timer="second", at="2100-01-01T05:45")
    timers = (await client.get(SEEN, "order-1")).timers
    assert set(timers) == {"", "lapse", "second"}
    assert timers["second"].due == datetime(2100, 1, 1, tzinfo=UTC)
    # What a program does leaves no entry: it may do so all the time.
    await client.unset_timer(SEEN, "order-1", "second")
    assert "unset_timer" not in [each.verb for each in (await client.audit(SEEN)).entries]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"timer": "lapse"}, "after"),
        ({"after": "1d", "at": "2100-01-01T00:00"}, "after"),
        ({"after": "soon"}, "after"),
        ({"at": "tomorrow"}, "at"),
        ({"at": "9999-01-01"}, "at"),
        ({"timer": "~x", "after": "1d"}, "timer"),
    ],
)
async def test_a_timer_that_cannot_be_set(world: World, fields: dict[str, str], field: str) -> None:
    """The form comes back open, as it was filled in, and says what is wrong at the field."""
    browser = await world.caller("all")
    before = (await world.client.get(SEEN, "order-1")).timers
    page = await browser.send((await browser.get(ONE)).form("/timers", "set"), "set", **fields)
    assert page.status == 400
    form = page.form("/timers", "set")
    assert fields.items() <= form.fields.items()
    at = page.attributes.index(("input", "aria-invalid", "true"))
    assert [value for _, name, value in page.attributes[:at] if name == "name"][-1] == field
    at = page.attributes.index(("details", "id", "set-timer"))
    assert page.attributes[at + 1] == ("details", "open", "")
    assert (await world.client.get(SEEN, "order-1")).timers == before


async def test_remove(operator: Operator) -> None:
    """If its id was typed: another text changes nothing."""
    page = await operator.get(ONE)
    for confirm in ("", "order-2", "order-1 ", "ORDER-1"):
        refused = await operator.browser.send(page.form("/remove"), confirm=confirm)
        assert refused.status == 400, confirm
    assert await operator.acts() == []
    page = await operator.send(page.form("/remove"), confirm="order-1", reason=REASON)
    assert page.note == f"{SEEN}/order-1 is removed."
    assert (await operator.browser.get(ONE)).status == 404
    await operator.only_act("remove", namespace=SEEN, process_id="order-1", reason=REASON)


async def test_pause_and_resume(operator: Operator) -> None:
    """A paused namespace says why, and begins nothing."""
    path = f"namespaces/{SEEN}"
    page = await operator.send((await operator.get(path)).form("/pause"), reason=REASON)
    assert REASON in page.said
    await operator.only_act("pause", namespace=SEEN, reason=REASON)
    assert REASON in (await operator.get("")).said
    assert f"{SEEN} is paused" in (await operator.get(ONE)).said
    page = await operator.send(page.form("/resume"), reason="enough")
    assert REASON not in page.said
    assert "is paused" not in (await operator.get(ONE)).said
    (entry, _) = await operator.acts()
    assert (entry.verb, entry.reason, entry.actor) == ("resume", "enough", operator.name)


async def test_calls_notices_and_redoes_are_noted(operator: Operator) -> None:
    """With who asked for them, and the call or the task; not what programs ask, nor a repetition."""
    client = operator.world.client
    await client.call(SEEN, "order-1", "pay", {"amount": 1})
    await client.notify(SEEN, "order-1", "pay", {"amount": 1})
    form = (await operator.get(ONE)).form("/call", name="pay")
    for _ in range(2):
        await operator.send(form, "call", args='{"amount": 7}')
    form = (await operator.get(ONE)).form("/call", name="pay")
    await operator.send(form, "notify", args='{"amount": 8}')
    form = (await operator.get(ONE)).forms_to("/redo")[0]
    await operator.send(form)
    noted = [(each.verb, each.process_id, each.subject, each.actor) for each in await operator.acts()]
    assert noted == [
        ("redo", "order-1", f"task {form.fields['task_id']}", operator.name),
        ("notify", "order-1", "pay", operator.name),
        ("call", "order-1", "pay", operator.name),
    ]
    entries = (await client.audit(SEEN, process_id="order-1")).entries
    assert len(entries) == 3


async def test_a_bulk(operator: Operator) -> None:
    """From a group of what is broken to its page, by the button that stands there."""
    page = await operator.get("broken")
    (url,) = (each for each in page.links if f"bulk/new?namespace={SEEN}" in each)
    page = await operator.get(url)
    assert "Repair 1 process" in page.said
    page = await operator.send(page.form("/bulk"), reason=REASON, rate="1000")
    assert page.note == "The bulk has begun."
    entry = await operator.only_act("repair_all", namespace=SEEN, reason=REASON)
    assert entry.subject is not None
    client = operator.world.client
    await until(lambda: client.get(SEEN, "order-2"), lambda found: found.status == "running")
    await operator.get("bulk")


async def test_a_bulk_is_stopped(world: World) -> None:
    """It begins no more repairs."""
    browser = await world.caller("all")
    form = (await browser.get(f"bulk/new?namespace={SEEN}&handler=break")).form("/bulk")
    page = await browser.send(form)
    page = await browser.send(page.form("/stop"))
    assert page.note == "The bulk begins no more repairs."
    assert "stop" in page.said
    assert [each.verb for each in (await world.client.audit()).entries if each.way == "console"] == [
        "stop_bulk",
        "repair_all",
    ]
    assert (await world.client.get(SEEN, "order-2")).status == "error"


async def test_a_schedule(operator: Operator) -> None:
    """It is triggered, paused with a reason, and resumed."""

    async def form(button: str) -> Any:
        forms = (await operator.get("schedules")).forms_to("/schedules")
        (found,) = (each for each in forms if each.fields["namespace"] == SEEN)
        assert ("how", button) in found.buttons
        return found

    await operator.send(await form("trigger"), "trigger", reason="now")
    page = await operator.send(await form("pause"), "pause", reason=REASON)
    assert REASON in page.said
    found = await operator.world.client.get(SCHEDULES, f"{SEEN}/nightly")
    assert found.state["reason"] == REASON
    await operator.send(await form("resume"), "resume")
    acts = await operator.acts()
    assert [(each.verb, each.reason) for each in acts] == [
        ("resume_schedule", None),
        ("pause_schedule", REASON),
        ("trigger_schedule", "now"),
    ]
    assert {each.actor for each in acts} == {operator.name}
    found = await operator.world.client.get(SCHEDULES, f"{SEEN}/nightly")
    assert found.state["paused_at"] is None


async def test_a_schedule_that_cannot_be_read(world: World) -> None:
    """Takes no other one from the page."""
    await world.client.put(SCHEDULES, "made by hand", state={"nothing": "of a schedule"})
    await world.client.put(SCHEDULES, f"{SEEN}/odd", state=[1])
    browser = await world.caller("all")
    page = await browser.get("schedules")
    assert page.status == 200
    for name in ("nightly", "odd", "made by hand"):
        assert name in page.said


@pytest.mark.parametrize(("action", "said"), [("retry", "are tried again"), ("skip", "are left out")])
async def test_what_is_parked(operator: Operator, action: str, said: str) -> None:
    """It is tried again, or left out for good."""
    page = await operator.get("feed")
    forms = page.forms_to("/feed/parked")
    assert len(forms) == len(await operator.world.client.parked())
    page = await operator.send(forms[0], action, reason=REASON)
    assert page.note is not None
    assert said in page.note
    assert f"{action} is asked for" in page.said
    await operator.only_act(f"{action}_parked", subject="books", reason=REASON)


async def test_a_note_is_shown_to_its_browser_alone(operator: Operator) -> None:
    """Another one of the same caller does not see it."""
    page = await operator.get(ONE)
    answer = await operator.browser.send(page.form("/call", name="echo"), "call", args="1", follow=False)
    assert answer.status == 303
    other = await operator.world.caller("all")
    assert (await other.get(ONE)).note is None
    assert (await operator.browser.get(ONE)).note == "echo answered: 1"
    assert (await operator.browser.get(ONE)).note is None


async def test_an_answer_that_is_late(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says that it is under way."""
    await operator.world.client.pause(SEEN)
    await operator.world.client.pause(SCHEDULES)
    for module in (changes, schedules):
        monkeypatch.setattr(module, "PATIENCE", timedelta(seconds=2))
    page = await operator.get(ONE)
    page = await operator.send(page.form("/call", name="echo"), "call", args="1")
    assert page.note == "echo was accepted, and is under way."
    page = await operator.send((await operator.get(TWO)).form("/repair", "handler"), "handler")
    assert page.note == "The repair was accepted, and is under way."
    page = await operator.send((await operator.get(ONE)).forms_to("/timers")[0], "fire")
    assert page.note == "The change of the timer was accepted, and waits."
    page = await operator.get("schedules")
    page = await operator.send(page.forms_to("/schedules")[0], "trigger")
    assert page.note == f"{SEEN}/nightly: trigger was accepted, and is under way."


async def test_a_call_whose_answer_was_lost(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its form comes back with its own key: sent again, the call is not made a second time."""
    client = operator.world.client
    called = type(client).call

    async def lost(*args: Any, **options: Any) -> Any:
        await called(*args, **options)
        raise StorageUnavailable("it may still go through")

    page = await operator.get(ONE)
    before = (await client.get(SEEN, "order-1")).state["paid"]
    with monkeypatch.context() as patched:
        patched.setattr(type(client), "call", lost)
        page = await operator.browser.send(page.form("/call", name="pay"), "call", args='{"amount": 7}')
    assert page.status == 503
    page = await operator.send(page.form("/call", name="pay"), "call", args='{"amount": 7}')
    assert page.note == f"pay answered: {before + 7}"
    assert (await client.get(SEEN, "order-1")).state["paid"] == before + 7


async def test_a_form_that_was_refused_has_a_key_of_its_own(operator: Operator) -> None:
    """For what is sent next may be something else."""
    page = await operator.get(ONE)
    form = page.form("/call", name="pay")
    page = await operator.browser.send(form, "call", args="{")
    assert page.status == 422
    assert page.form("/call", name="pay").fields["key"] != form.fields["key"]
