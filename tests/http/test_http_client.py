"""HttpClient asks as Client does, and raises the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from progressor import Client, Cron, Event, Mailbox, Namespace, Process, errors
from progressor.http import HttpClient
from progressor.http.client.decode import error_of
from progressor.http.server.app import make_app
from progressor.http.server.problems import problem_of
from progressor.http.wire.problems import TABLE
from progressor.inputs import HistoryRange
from progressor.schedules import SCHEDULES
from progressor.timers import SetTimer
from tests.acceptance.support import Gate
from tests.http import shop
from tests.http.conftest import Serve, opened
from tests.http.shop import NS
from tests.open_access import OpenAccess

ERRORS = [
    errors.ProgressorError("anything"),
    errors.InvalidRequest("limit must be 1 or more", field="limit"),
    errors.InvalidRequest("args.amount: too small", field="args.amount"),
    errors.IdempotencyConflict(NS, "o1", "key"),
    errors.IdempotencyConflict(NS, None, "key"),
    errors.CallCycle(["a", "b"]),
    errors.InvalidState("not of its type"),
    errors.Undecryptable(NS, "o1", "state", detail="it is no whole envelope"),
    errors.Undecryptable(NS, "o1", "args", detail="it is not encrypted", is_plain=True),
    errors.KeyMissing(NS, "o1", "response", kid="k1"),
    errors.NamespaceNotFound(NS),
    errors.NamespaceNotFound(NS, ("shop.orders",)),
    errors.NamespaceInUse(NS, workers=1, processes=2),
    errors.ProcessNotFound(NS, "a/ü", detail="it was removed"),
    errors.ScheduleNotFound(SCHEDULES, "shop.order/nightly"),
    errors.TaskNotFound(NS, "o1", task_id=17),
    errors.TaskNotFound(NS, "o1", task_id=17, is_deleted=True),
    errors.HistoryTruncated(NS, "o1", first_event_id=5),
    errors.FeedTruncated("1f-3-0-2", "it was deleted"),
    errors.SubscriptionLost("ledger", "it was removed"),
    errors.ArchiveUnavailable(NS, "no such bucket"),
    errors.ArchiveDamaged("part", "its SHA-256 is not that of its manifest"),
    errors.TaskNotEnded(NS, "o1", task_id=17),
    errors.TaskCancelled(NS, "o1", task_id=17, detail="timer replaced"),
    errors.ProcessAlreadyExists(NS, "o1"),
    errors.ProcessBroken(NS, "o1", detail="why"),
    errors.ProcessNotBroken(NS, "o1"),
    errors.RepairConflict(NS, "o1", detail="another repair of it runs or waits"),
    errors.BulkNotFound(7),
    errors.Rejected(NS, "o1", reason="no", details={"day": 1}),
    errors.Expired(NS, "o1", reason="it was not begun by 2040", details={"expires_at": "2040"}),
    errors.HandlerFailed(NS, "o1", error="KeyError: 1"),
    errors.ReplyTimeout(NS, "o1", idempotency_key="key", task_id=3),
    errors.StorageUnavailable("away"),
    errors.RequestLost(NS, "o1", idempotency_key="key", task_id=3),
    errors.SchemaMismatch("too old"),
]


def test_every_error_is_tried() -> None:
    """Each class of the table has an example here."""
    assert {type(each) for each in ERRORS} == set(TABLE)


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_an_error_survives_the_way(error: errors.ProgressorError) -> None:
    """As a problem and back: the same class, text and attributes."""
    answer = problem_of(error, shows_failures=True)
    back = error_of(httpx.Response(answer.status_code, content=bytes(answer.body)))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (301, errors.InvalidRequest),
        (404, errors.InvalidRequest),
        (408, errors.StorageUnavailable),
        (413, errors.InvalidRequest),
        (429, errors.StorageUnavailable),
        (502, errors.StorageUnavailable),
        (504, errors.StorageUnavailable),
    ],
)
def test_what_a_proxy_says_is_worth_a_repetition_or_not(
    status: int, wanted: type[errors.ProgressorError]
) -> None:
    """A page of its own, and no problem: its status says whether the same request may go through later."""
    error = error_of(httpx.Response(status, content=b"<html><h1>nginx</h1></html>"))
    assert type(error) is wanted
    assert str(status) in str(error)


@pytest.mark.parametrize("error", [each for each in ERRORS if hasattr(each, "detail")], ids=repr)
def test_a_failures_text_is_for_those_who_may_read_it(error: Any) -> None:
    """Others hear which kind of failure it was."""
    hidden = problem_of(error, shows_failures=False).body.decode()
    said = type(error) not in (errors.HandlerFailed, errors.ProcessBroken)
    assert (error.detail is None) or (str(error.detail) in hidden) == said


@pytest.fixture
async def client(serve: Serve, gate: Gate) -> AsyncIterator[HttpClient]:
    api = await serve(shop.make(gate))
    async with HttpClient("http://api", transport=api._transport) as client:
        yield client


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def test_it_asks_as_the_client_does(client: HttpClient) -> None:
    """Start, call, notify, repair, get, trace, search, put, remove."""
    answer = await client.start(NS, "a/ü", {"item": "tea"}, metadata={"shop": "Köln 💶"}, context="ctx")
    assert answer == "1 x tea"
    assert await client.call(NS, "a/ü", "pay", {"amount": "2.5"}, idempotency_key="schlüssel") == "2.5"
    assert await client.call(NS, "a/ü", "pay", {"amount": "2.5"}, idempotency_key="schlüssel") == "2.5"
    await client.notify(NS, "a/ü", "pay", {"amount": 1})
    assert await client.call(NS, "a/ü", "echo") is None
    process = await client.get(NS, "a/ü")
    assert (process.state, process.metadata) == ({"item": "tea", "paid": "3.5"}, {"shop": "Köln 💶"})
    assert [(each.event_id, each.name) for each in process.history] == [
        (1, "placed"),
        (2, "paid"),
        (3, "paid"),
    ]
    last = await client.get(NS, "a/ü", range=HistoryRange(limit=2, direction="backward"))
    assert [(each.event_id, each.payload) for each in last.history] == [
        (3, {"amount": "1"}),
        (2, {"amount": "2.5"}),
    ]
    trace = await client.trace(NS, "a/ü")
    assert [each.name or each.task_type for each in trace] == ["init", "pay", "pay", "echo"]
    assert (trace[0].context, trace[1].idempotency_key) == ("ctx", "schlüssel")
    assert trace[1].events[0].name == "paid"
    (found,) = (await client.search(namespace=NS, metadata={"shop": "Köln 💶"})).items
    assert found.process_id == "a/ü"
    assert await client.result(NS, "a/ü", trace[1].task_id) == "2.5"
    await client.put(NS, "put", state={"item": "x"}, events=[{"name": "e", "payload": 1}], status="error")
    run = await client.dry_run_repair(NS, "put", {"amount": 1})
    assert (run.answer, run.state) == ("mended", {"item": "x"})
    assert await client.repair(NS, "put", {"amount": 1}) == "mended"
    await client.remove(NS, "put")
    assert (await client.published(NS)).schemas["calls"]["pay"]["args"]["required"] == ["amount"]
    health = await client.health()
    assert (health.ok, health.namespaces) == (True, (NS,))


async def test_requests_by_function(client: HttpClient) -> None:
    """Answers and states are of the declared types, without a codec or a namespace given to the client."""
    orders = Namespace(NS, state=shop.Order)

    @orders.init
    async def place(process: Process[shop.Order], args: shop.Open) -> str: ...  # type: ignore[empty-body]

    @orders.call
    async def pay(process: Process[shop.Order], args: shop.Pay) -> Decimal: ...  # type: ignore[empty-body]

    @orders.call(name="echo")
    async def same(process: Process[shop.Order], args: shop.Pay) -> shop.Pay: ...  # type: ignore[empty-body]

    order = client.process(orders, "o1")
    assert await order.start(place, shop.Open(item="tea")) == "1 x tea"
    assert await client.call(pay, "o1", shop.Pay(amount=Decimal("2.5"))) == Decimal("2.5")
    assert await order.call(same, shop.Pay(amount=Decimal(1))) == shop.Pay(amount=Decimal(1))
    await order.notify(pay, shop.Pay(amount=Decimal(1)))
    assert (await order.get()).state == shop.Order(item="tea", paid=Decimal("3.5"))
    with pytest.raises(errors.InvalidAnswer):
        await client.call(same, "o1", None)  # type: ignore[arg-type]


async def test_it_raises_what_the_client_does(client: HttpClient) -> None:
    """With the attributes of each."""
    with pytest.raises(errors.ProcessNotFound) as missing:
        await client.get(NS, "o1")
    assert (missing.value.namespace, missing.value.process_id) == (NS, "o1")
    await client.start(NS, "o1", {"item": "tea"})
    with pytest.raises(errors.Rejected) as refused:
        await client.call(NS, "o1", "refuse")
    assert (refused.value.reason, refused.value.details) == ("not today", {"day": "Sunday"})
    with pytest.raises(errors.InvalidRequest, match="amount") as wrong:
        await client.call(NS, "o1", "pay", {"amount": -1})
    assert wrong.value.field == "args.amount"
    with pytest.raises(errors.HandlerFailed, match="a secret"):
        await client.call(NS, "o1", "break")
    with pytest.raises(errors.ProcessBroken):
        await client.call(NS, "o1", "echo")
    await client.simple_repair(NS, "o1")
    with pytest.raises(errors.ProcessAlreadyExists):
        await client.put(NS, "o1")


async def test_it_waits_for_as_long_as_there_is_patience(client: HttpClient, gate: Gate) -> None:
    """Then ReplyTimeout has the task and the key; the same key gets the answer, and so does the task."""
    await client.start(NS, "o1", {"item": "tea"})
    with pytest.raises(errors.ReplyTimeout) as late:
        await client.call(NS, "o1", "wait", timeout=2)
    key, task_id = late.value.idempotency_key, late.value.task_id
    assert key is not None
    assert task_id is not None
    asked = asyncio.ensure_future(client.call(NS, "o1", "wait", idempotency_key=key))
    await gate.entered()
    gate.open()
    assert await asked == "waited"
    assert await client.result(NS, "o1", task_id) == "waited"


class Losing(httpx.AsyncBaseTransport):
    """Loses every other answer, after the request was carried out."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        if self.lost % 2 == 0:
            self.lost += 1
            raise httpx.ReadError("the connection is gone", request=request)
        self.lost += 1
        return answer


async def test_a_lost_answer_is_asked_for_again(serve: Serve) -> None:
    """Under the same key: one step, and its answer."""
    api = await serve(shop.make())
    transport = Losing(api._transport)
    async with HttpClient("http://api", transport=transport) as client:
        assert await client.start(NS, "o1", {"item": "tea"}) == "1 x tea"
        assert await client.call(NS, "o1", "pay", {"amount": 3}) == "3"
        assert len(await client.trace(NS, "o1")) == 2
    assert transport.lost == 6


async def test_an_api_that_is_away_is_said_after_the_patience() -> None:
    """StorageUnavailable, which says that the same key is safe to repeat."""
    async with HttpClient("http://127.0.0.1:1") as client:
        with pytest.raises(errors.StorageUnavailable, match="cannot be reached"):
            await client.call(NS, "o1", "pay", timeout=0.2)
        assert not (await client.health()).ok


async def test_timers_are_put(client: HttpClient) -> None:
    """As SetTimer says."""
    await client.put(NS, "o1", state={"item": "x"}, action=SetTimer(after=timedelta(hours=1), remove=True))
    process = await client.get(NS, "o1", range=None)
    assert process.timer is not None
    assert process.timer.task_type == "remove"


def test_the_application_needs_scopes() -> None:
    """Each route has one; none can be built without."""
    app = make_app(None, access=OpenAccess())
    assert [route.path for route in app.routes if not hasattr(route, "scope")] == []


async def test_timers_are_set_fired_and_unset(client: HttpClient) -> None:
    """As by the Client; what is no timer is refused before it is sent."""
    await client.start(NS, "o1", {"item": "tea"})
    with pytest.raises(errors.InvalidRequest, match="SetTimer"):
        await client.set_timer(NS, "o1")
    await client.set_timer(NS, "o1", after=timedelta(hours=1), remove=True)
    timer = (await client.get(NS, "o1")).timer
    assert timer is not None
    assert timer.task_type == "remove"
    await client.unset_timer(NS, "o1")
    assert (await client.get(NS, "o1")).timer is None
    with pytest.raises(errors.Rejected, match="has no timer"):
        await client.fire_timer(NS, "o1")
    rule, at = Cron("0 9 1 1 *", tz="Europe/Berlin"), datetime(2100, 1, 1, 8, 30, tzinfo=UTC)
    hours = (time(10), time(18), "Europe/Berlin")
    await client.set_timer(
        NS, "o1", "yearly", every=rule, at=at, catch_up="all", within=timedelta(days=1), between=hours
    )
    timer = (await client.get(NS, "o1")).timers["yearly"]
    assert timer.due == datetime(2101, 1, 1, 9, tzinfo=UTC)
    assert (timer.every, timer.drift, timer.nominal) == (rule, "fixed", datetime(2101, 1, 1, 8, tzinfo=UTC))
    assert timer.next == datetime(2102, 1, 1, 8, tzinfo=UTC)
    (found,) = (await client.search(namespace=NS)).items
    assert found.timers == {"yearly": timer}
    await client.put(NS, "o2", state=None, action=SetTimer(every=timedelta(days=1), at=at))
    assert (await client.get(NS, "o2")).timers[""].due == at


async def test_broken_processes_are_repaired_in_bulk(client: HttpClient) -> None:
    """Looked at first, made once under its key, seen to its end, and stopped where it has ended."""
    for process_id in ("o1", "o2", "o3"):
        await client.start(NS, process_id, {"item": "tea"})
        if process_id != "o3":
            with pytest.raises(errors.HandlerFailed):
                await client.call(NS, process_id, "break")
    preview = await client.preview_repair_all(NS)
    assert (preview.processes, preview.groups[0].processes) == (2, 2)
    with pytest.raises(errors.InvalidRequest):
        await client.repair_all(NS, {"amount": []})
    made, again = [
        await client.repair_all(NS, simple=True, rate=1000, idempotency_key="tonight") for _ in range(2)
    ]
    assert again.bulk_id == made.bulk_id
    found = made
    async with asyncio.timeout(60):
        while not found.status.is_final:
            found = await client.bulk(made.bulk_id)
    assert (found.repaired, found.left) == (2, 0)
    assert [each.bulk_id for each in await client.bulks()] == [made.bulk_id]
    assert (await client.stop_bulk(made.bulk_id)).status == "finished"
    with pytest.raises(errors.BulkNotFound):
        await client.bulk(made.bulk_id + 1)


async def test_a_bulk_redoes_as_the_clients_does(client: HttpClient) -> None:
    """The call that broke the process is run again, and breaks it again; the bulk counts it."""
    await client.start(NS, "o1", {"item": "tea"})
    with pytest.raises(errors.HandlerFailed):
        await client.call(NS, "o1", "break")
    found = await client.repair_all(NS, simple=True, redo=True)
    async with asyncio.timeout(60):
        while not found.status.is_final:
            found = await client.bulk(found.bulk_id)
    assert (found.redo, found.repaired, found.redone) == (True, 1, 1)
    _, broke, _, redo = await client.trace(NS, "o1")
    assert (redo.redoes, broke.redone_by) == (broke.task_id, redo.task_id)
    with pytest.raises(errors.HandlerFailed):
        await client.result(NS, "o1", redo.task_id)


async def test_a_request_expires(client: HttpClient) -> None:
    """The caller gets what a Client's gets; one that begins in time runs."""
    await client.start(NS, "o1", {"item": "tea"})
    assert await client.call(NS, "o1", "echo", 1, expires=timedelta(hours=1)) == 1
    await client.pause(NS)
    late = await client.submit_call(NS, "o1", "echo", 2, expires=timedelta(microseconds=1))
    notice = await client.submit_notify(NS, "o1", "echo", 3, expires=timedelta(microseconds=1))
    await client.resume(NS)
    for receipt in (late, notice):
        with pytest.raises(errors.Expired) as refused:
            await client.answer(receipt)
    entries = await client.trace(NS, "o1")
    expired = {entry.task_id: entry.expires_at for entry in entries}[notice.task_id]
    assert expired is not None
    assert refused.value.details == {"expires_at": expired.isoformat()}
    with pytest.raises(errors.InvalidRequest, match="expires must be a timedelta"):
        await client.call(NS, "o1", "echo", 1, expires=3)  # type: ignore[call-overload]


async def test_a_request_has_a_priority(client: HttpClient) -> None:
    """It stands in its trace, beside its expiry."""
    await client.start(NS, "o1", {"item": "tea"}, priority=3)
    await client.call(NS, "o1", "echo", 1, priority=-10, expires=timedelta(hours=1))
    await client.notify(NS, "o1", "echo", 1, priority=10)
    entries = await client.trace(NS, "o1")
    assert [entry.priority for entry in entries] == [3, -10, 10]
    assert [entry.expires_at is None for entry in entries] == [True, False, True]
    with pytest.raises(errors.InvalidRequest, match="priority must be from -10 to 10, not 11"):
        await client.notify(NS, "o1", "echo", 1, priority=11)


async def test_a_namespace_is_paused_and_resumed(client: HttpClient) -> None:
    """Its calls wait until it is resumed, and whoever gives up is told why."""
    await client.start(NS, "o1", {"item": "tea"})
    await client.pause(NS, "the provider & its ☎ are down")
    (status,) = await client.status(NS)
    assert status.pause_reason == "the provider & its ☎ are down"
    with pytest.raises(errors.ReplyTimeout, match="is paused") as late:
        await client.call(NS, "o1", "echo", 1, idempotency_key="k", timeout=2)
    assert late.value.paused
    await client.resume(NS)
    assert await client.call(NS, "o1", "echo", 1, idempotency_key="k") == 1


@pytest.fixture
async def direct(dsn: str) -> AsyncIterator[Client]:
    """A Client of the same database."""
    async with Client(dsn) as direct:
        yield direct


async def test_receipts(client: HttpClient, direct: Client, gate: Gate) -> None:
    """What was submitted is answered later: by either client, whoever made the receipt."""
    started = await client.submit_start(NS, "o1", {"item": "tea"}, metadata={"shop": "Ulm"})
    assert await client.answer(started) == "1 x tea"
    assert await direct.answer(started) == "1 x tea"
    assert (await client.get(NS, "o1")).metadata == {"shop": "Ulm"}
    waiting = await client.submit_call(NS, "o1", "wait", idempotency_key="key")
    assert (waiting.idempotency_key, waiting.replayed) == ("key", False)
    with pytest.raises(errors.ReplyTimeout) as late:
        await client.answer(waiting, timeout=2)
    assert (late.value.idempotency_key, late.value.task_id) == ("key", waiting.task_id)
    again = await client.submit_call(NS, "o1", "wait", idempotency_key="key")
    assert again == waiting._replace(replayed=True)
    gate.open()
    assert await client.answer(again) == "waited"
    assert await client.result(NS, "o1", waiting.task_id) == "waited"
    with pytest.raises(errors.IdempotencyConflict):
        await client.submit_call(NS, "o1", "echo", idempotency_key="key")
    by_client = await direct.submit_call(NS, "o1", "echo", 7)
    assert await client.answer(by_client) == 7
    notice = await client.submit_notify(NS, "o1", "pay", {"amount": 2})
    assert await client.answer(notice) == "2"
    with pytest.raises(errors.TaskNotFound):
        await client.result(NS, "o1", 2**62)


async def test_receipts_of_what_fails(client: HttpClient) -> None:
    """They are given though the answer is an error; who asks for the answer gets that."""
    await client.start(NS, "o1", {"item": "tea"})
    refused = await client.submit_call(NS, "o1", "refuse")
    # The next request comes after it, so by now it has its answer.
    await client.call(NS, "o1", "echo")
    replayed = await client.submit_call(NS, "o1", "refuse", idempotency_key=refused.idempotency_key)
    assert replayed == refused._replace(replayed=True)
    for receipt in (refused, replayed):
        with pytest.raises(errors.Rejected, match="not today"):
            await client.answer(receipt)
    broken = await client.submit_call(NS, "o1", "break")
    with pytest.raises(errors.HandlerFailed):
        await client.answer(broken)
    with pytest.raises(errors.ProcessBroken):
        await client.submit_call(NS, "o1", "echo")
    with pytest.raises(errors.InvalidRequest):
        await client.submit_repair(NS, "o1", {"amount": -1})
    mended = await client.submit_repair(NS, "o1", {"amount": 1})
    assert await client.answer(mended) == "mended"
    with pytest.raises(errors.HandlerFailed):
        await client.call(NS, "o1", "break")
    simple = await client.submit_simple_repair(NS, "o1", idempotency_key="key")
    assert (await client.submit_simple_repair(NS, "o1", idempotency_key="key")).replayed
    assert not simple.replayed
    assert await client.answer(simple) is None


async def test_a_lost_receipt_is_asked_for_again(serve: Serve) -> None:
    """Under the same key."""
    api = await serve(shop.make())
    async with HttpClient("http://api", transport=Losing(api._transport)) as client:
        receipt = await client.submit_start(NS, "o1", {"item": "tea"})
        assert receipt.replayed
        assert await client.answer(receipt) == "1 x tea"


async def test_a_process_has_a_handle(client: HttpClient) -> None:
    """With the methods of the client, without their first two arguments."""
    order = client.process(NS, "o/1")
    assert await order.start({"item": "tea"}) == "1 x tea"
    assert await order.call("pay", {"amount": 2}) == "2"
    await order.set_timer(after=timedelta(hours=1))
    receipt = await order.submit_call("echo", 3)
    assert await order.result(receipt.task_id) == 3
    assert [each.name for each in await order.trace(last=3)] == ["progressor:set_timer", None, "echo"]
    assert (await order.get()).timer is not None
    await order.remove()
    with pytest.raises(errors.ProcessNotFound):
        await order.get()


async def test_what_operators_see(client: HttpClient, direct: Client) -> None:
    """The same as by the Client: namespaces, workers, status, errors."""
    for number in range(3):
        await client.start(NS, f"o{number}", {"item": "tea"})
    await client.set_timer(NS, "o0", after=timedelta(hours=1))
    with pytest.raises(errors.HandlerFailed):
        await client.call(NS, "o1", "break")
    assert await client.namespaces() == await direct.namespaces()
    (worker,), (known,) = await client.workers(), await direct.workers()
    # Its next sign of life may have come in between.
    moving = {"seen_at": known.seen_at, "silent_for": known.silent_for, "free_slots": known.free_slots}
    assert replace(worker, **moving) == known
    assert worker.is_live
    (status,) = await client.status()
    assert [status] == await direct.status()
    assert (status.broken, status.calls.tasks, len(status.next_timers)) == (1, 0, 1)
    assert await client.status(NS) == [status]
    assert (status.waiting.requests, status.through_in) == (0, timedelta())
    empty = Mailbox("o0", 0, False, timedelta(), timedelta())
    assert await client.mailbox(NS, "o0") == await direct.mailbox(NS, "o0") == empty
    assert await client.process(NS, "o0").mailbox() == empty
    for nobody in ((NS, "nobody"), ("nobody.knows", "o0")):
        for each in (client, direct):
            with pytest.raises((errors.ProcessNotFound, errors.NamespaceNotFound)):
                await each.mailbox(*nobody)
    (group,) = await client.errors()
    assert [group] == await direct.errors()
    assert group.message == "RuntimeError: a secret of the handler"
    for since in (timedelta(hours=1), timedelta.max, group.last_seen):
        assert await client.errors(namespace=NS, since=since) == [group]
    assert await client.errors(since=timedelta(0)) == []
    for wrong in (group.last_seen.replace(tzinfo=None), timedelta(seconds=-1)):
        for each in (client, direct):
            with pytest.raises(errors.InvalidRequest) as refused:
                await each.errors(since=wrong)
            assert refused.value.field == "since"
    for ask in (client.status, client.retire, client.published):
        with pytest.raises(errors.NamespaceNotFound):
            await ask("nobody.knows")


async def test_a_namespace_is_retired(client: HttpClient, dsn: str) -> None:
    """One that is in use is not, and the error says by what."""
    with pytest.raises(errors.NamespaceInUse) as refused:
        await client.retire(NS)
    assert (refused.value.workers, refused.value.processes) == (1, 0)
    await opened(dsn, "shop.old")
    await client.retire("shop.old")
    assert [each.name for each in await client.namespaces()] == [NS]


async def test_the_end_of_a_trace(client: HttpClient, direct: Client) -> None:
    """As of the Client, in each of its shapes."""
    await client.start(NS, "o1", {"item": "tea"})
    for number in range(4):
        await client.call(NS, "o1", "echo", number)
    tasks = await direct.trace(NS, "o1")
    assert await client.trace(NS, "o1") == tasks
    for wanted in ({"last": 2}, {"last": 5000}, {"last": 0}, {"limit": 3}, {"limit": 0}, {"limit": 9}):
        for after in (0, tasks[1].task_id):
            found = [await each.trace(NS, "o1", after=after, **wanted) for each in (client, direct)]
            assert found[0] == found[1]
    for wrong in ({"last": 1, "limit": 1}, {"last": -1}, {"limit": -1}, {"after": -1}):
        with pytest.raises(errors.InvalidRequest):
            await client.trace(NS, "o1", **wrong)
    with pytest.raises(errors.ProcessNotFound):
        await client.trace(NS, "o2", limit=0)


async def test_an_import_takes_what_the_clients_takes(serve: Serve, direct: Client) -> None:
    """Models, events and dicts; and bytes: those of a raw namespace, or JSON already."""
    api = await serve(shop.make(), shop.raw())
    given: list[Any] = [
        shop.Pay(amount=Decimal(3)),
        {"name": "paid", "item": "tea"},
        {
            "name": "paid",
            "payload": 1,
            "metadata": {"till": 2},
            "timestamp": datetime(2020, 1, 1, tzinfo=UTC),
        },
        Event(b'{"a":1}', {"name": "event"}),
    ]
    async with HttpClient("http://api", transport=api._transport) as client:
        state = shop.Order(item="tea", paid=Decimal("2.5"))
        for each, process_id in ((client, "http"), (direct, "direct")):
            await each.put(NS, process_id, state=state, events=given, metadata={"shop": "Ulm"})
            await each.put("shop.raw", process_id, state=b"\xff", events=[{"payload": b"\xfe"}])
        for namespace in (NS, "shop.raw"):
            one, other = [await direct.get(namespace, each) for each in ("http", "direct")]
            assert (one.aux_state, one.metadata) == (other.aux_state, other.metadata)
            assert [(each.payload, each.metadata) for each in one.history] == [
                (each.payload, each.metadata) for each in other.history
            ]
        for wrong in ({"status": "init"}, {"events": "x"}, {"events": [7]}, {"action": 7}):
            with pytest.raises(errors.InvalidRequest):
                await client.put(NS, "o1", **wrong)


async def test_it_redoes_as_the_client_does(client: HttpClient, gate: Gate) -> None:
    """Once, with the answer of a call and none of a notice; errors are the same."""
    await client.start(NS, "o1", {"item": "tea"})
    order = client.process(NS, "o1")
    assert await order.call("pay", {"amount": 2}) == "2"
    await order.notify("pay", {"amount": 3})
    with pytest.raises(errors.HandlerFailed):
        await order.call("break")
    begun, paid, noted, broke = [each.task_id for each in await order.trace()]
    with pytest.raises(errors.ProcessBroken):
        await order.redo(paid)
    await order.simple_repair()
    assert [await order.redo(paid), await order.redo(paid), await order.redo(noted)] == ["7", "7", None]
    with pytest.raises(errors.HandlerFailed):
        await order.redo(broke)
    await order.simple_repair()
    entries = {each.task_id: each for each in await order.trace()}
    redone_by = entries[paid].redone_by or 0
    assert (entries[redone_by].redoes, entries[redone_by].args) == (paid, {"amount": 2})
    receipt = await order.submit_redo(paid)
    assert (receipt.task_id, receipt.replayed) == (redone_by, True)
    assert await client.answer(receipt) == "7"
    waiting = await order.submit_call("wait")
    with pytest.raises(errors.TaskNotEnded):
        await order.redo(waiting.task_id)
    gate.open()
    assert await client.answer(waiting) == "waited"
    assert await order.redo(waiting.task_id, fingerprint=waiting.fingerprint) == "waited"
    for wrong, error in (
        (order.redo(begun), errors.InvalidRequest),
        (order.redo(10**9), errors.TaskNotFound),
        (order.redo(paid, fingerprint="A" * 16), errors.RequestLost),
        (client.redo(NS, "none", paid), errors.ProcessNotFound),
        (client.redo("no.such", "o1", paid), errors.NamespaceNotFound),
    ):
        with pytest.raises(error):
            await wrong


async def test_a_redo_in_no_time_is_answered_later(client: HttpClient, gate: Gate) -> None:
    """It was accepted, and goes on; the error names no key, for the task is its key."""
    await client.start(NS, "o1", {"item": "tea"})
    first = await client.submit_call(NS, "o1", "wait")
    gate.open()
    await client.answer(first)
    gate._opened.clear()
    with pytest.raises(errors.ReplyTimeout) as late:
        await client.redo(NS, "o1", first.task_id, timeout=2)
    assert (late.value.idempotency_key, late.value.task_id != first.task_id) == (None, True)
    gate.open()
    assert await client.redo(NS, "o1", first.task_id) == "waited"
