"""Every route, as one who asks it sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from progressor import Namespace, Process, Reject
from progressor.http.server import api_request
from progressor.http.server.options import HttpOptions
from progressor.http.wire.paths import segment_of, text_of
from tests.acceptance.support import Gate
from tests.http import shop
from tests.http.conftest import Serve

ORDERS = "/v1/namespaces/shop.order/processes"
ORDER = f"{ORDERS}/o1"
IDS = ["a/b", "..", ".", "~x", "ü", "x" * 256, "%2F", "a b?c#d", "💶"]


@pytest.fixture
async def order(api: httpx.AsyncClient) -> httpx.AsyncClient:
    """The API, with one order."""
    assert (await api.post(ORDER, json={"item": "tea"})).status_code == 201
    return api


def kind(answer: httpx.Response) -> str:
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return answer.json()["type"].removeprefix("urn:progressor:problem:")


@pytest.mark.parametrize("process_id", IDS, ids=lambda text: text[:10])
async def test_any_id_has_a_path(api: httpx.AsyncClient, process_id: str) -> None:
    """Started, read, called, found and removed under it, whatever is in it."""
    url = f"{ORDERS}/{segment_of(process_id)}"
    started = await api.post(url, json={"item": "tea"})
    assert (started.status_code, started.headers["Location"]) == (201, url)
    assert (await api.get(url)).json()["process_id"] == process_id
    assert (await api.post(f"{url}/calls/echo", json=1)).json() == 1
    (found,) = (await api.get("/v1/processes")).json()["processes"]
    assert found["process_id"] == process_id
    assert (await api.delete(url)).status_code == 204
    assert kind(await api.get(url)) == "process-not-found"


async def test_an_id_may_be_percent_encoded(api: httpx.AsyncClient) -> None:
    """What a proxy leaves as it is arrives: a slash stays within its segment."""
    assert (await api.post(f"{ORDERS}/a%2Fb%20%C3%BC", json={"item": "tea"})).status_code == 201
    assert (await api.get(f"{ORDERS}/{segment_of('a/b ü')}")).json()["process_id"] == "a/b ü"


@pytest.mark.parametrize("query", ["", "?state=true"])
@pytest.mark.parametrize("segment", ["~!", "%FF", "~_w", "%00", "x" * 257])
async def test_a_segment_that_is_no_id_is_refused(api: httpx.AsyncClient, segment: str, query: str) -> None:
    """By the name of the field, whether there is a query or not."""
    refused = await api.get(f"{ORDERS}/{segment}{query}")
    assert (kind(refused), refused.json()["field"]) == ("invalid-request", "process_id")
    assert refused.json()["detail"].startswith("process_id ")


@pytest.mark.parametrize("task_id", ["0", "x", "1.5", str(2**63)])
async def test_a_task_that_cannot_be_is_refused(api: httpx.AsyncClient, task_id: str) -> None:
    """By the name of the field, with the rule that it breaks."""
    refused = await api.get(f"{ORDER}/tasks/{task_id}")
    assert (kind(refused), refused.json()["field"]) == ("invalid-request", "task_id")
    (fault,) = refused.json()["errors"]
    assert fault["pointer"] == "/task_id"


@pytest.mark.parametrize(
    "path",
    [
        "?state=true",
        "/events?limit=100&after=0",
        "/events?direction=forward",
        "/trace?after=0",
        "/tasks/1?",
    ],
)
async def test_a_query_that_says_what_holds_anyhow(order: httpx.AsyncClient, path: str) -> None:
    """It is answered as without it."""
    path = path.replace(
        "/tasks/1", f"/tasks/{(await order.get(ORDER + '/trace')).json()['tasks'][0]['task_id']}"
    )
    asked = await order.get(ORDER + path)
    assert asked.status_code == 200
    assert asked.json() == (await order.get(ORDER + path.partition("?")[0])).json()


@pytest.mark.parametrize("path", ["?state=maybe", "/events?limit=0", "/trace?after=x"])
async def test_a_query_that_is_none_is_refused(order: httpx.AsyncClient, path: str) -> None:
    """By the name of the parameter."""
    refused = await order.get(ORDER + path)
    assert kind(refused) == "invalid-request"
    assert refused.json()["field"] == path.partition("?")[2].partition("=")[0]


@pytest.mark.parametrize("text", IDS, ids=lambda text: text[:10])
def test_a_segment_is_plain(text: str) -> None:
    """What is written reads back, and holds nothing that a proxy would change."""
    segment = segment_of(text)
    assert text_of(segment, "process_id") == text
    assert segment.replace("~", "").replace("-", "").replace("_", "").isalnum()


async def test_args_are_checked_against_what_is_published(order: httpx.AsyncClient) -> None:
    """422 names each field and its rule, and nothing was written."""
    refused = await order.post(f"{ORDER}/calls/pay", json={"amount": -17})
    assert (refused.status_code, kind(refused)) == (422, "invalid-args")
    assert [each["pointer"] for each in refused.json()["errors"]] == ["/amount"]
    assert "17" not in refused.text
    started = await order.post(f"{ORDERS}/o2", json={"item": "tea", "count": 0})
    assert (started.status_code, started.json()["field"]) == (422, "args.count")
    assert (await order.post(f"{ORDERS}/o2", json=None)).status_code == 422
    assert kind(await order.get(f"{ORDERS}/o2")) == "process-not-found"
    assert len((await order.get(f"{ORDER}/trace")).json()["tasks"]) == 1


async def test_a_number_keeps_its_digits(order: httpx.AsyncClient) -> None:
    """Arguments are passed on as they were written, but for white space."""
    text = '{ "amount" : 12345678901234567890123456789, "note": " \\" " }'
    echoed = await order.post(
        f"{ORDER}/calls/echo", content=text, headers={"Content-Type": "application/json"}
    )
    assert echoed.text == '{"amount":12345678901234567890123456789,"note":" \\" "}'


@pytest.mark.parametrize(
    ("content", "headers", "wanted"),
    [
        ("{", {"Content-Type": "application/json"}, (422, "invalid-args")),
        ("NaN", {"Content-Type": "application/json"}, (422, "invalid-args")),
        ("{}", {"Content-Type": "text/plain"}, (415, "wrong-media-type")),
        ("{}", {}, (415, "wrong-media-type")),
        ("{}", {"Content-Type": "application/json", "Accept": "text/html"}, (406, "not-acceptable")),
        ('"' + "x" * 100 + '"', {"Content-Type": "application/json"}, (413, "too-large")),
        ("{}", {"Content-Type": "application/json", "Idempotency-Key": '"'}, (400, "invalid-request")),
        ("{}", {"Content-Type": "application/json", "Progressor-Context": "{"}, (400, "invalid-request")),
    ],
)
async def test_what_cannot_be_read_is_refused(
    serve: Serve, content: str, headers: dict[str, str], wanted: tuple[int, str]
) -> None:
    """Before anything is written."""
    api = await serve(shop.make(), options=HttpOptions(max_value_bytes=100))
    refused = await api.post(f"{ORDER}/calls/echo", content=content, headers=headers)
    assert (refused.status_code, kind(refused)) == wanted


async def test_a_key_makes_a_request_once(order: httpx.AsyncClient) -> None:
    """A replay has the same body and says so; another request under the key is refused."""
    key = {"Idempotency-Key": '"pay-1"'}
    first = await order.post(f"{ORDER}/calls/pay", json={"amount": 3}, headers=key)
    again = await order.post(f"{ORDER}/calls/pay", json={"amount": 3}, headers={"Idempotency-Key": "pay-1"})
    assert (first.text, again.text, again.status_code) == ('"3"', '"3"', 200)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert first.headers["Idempotency-Key"] == again.headers["Idempotency-Key"] == '"pay-1"'
    other = await order.post(f"{ORDER}/calls/pay", json={"amount": 4}, headers=key)
    assert (other.status_code, kind(other)) == (422, "idempotency-conflict")
    made = await order.post(f"{ORDER}/calls/pay", json={"amount": 1})
    assert len(made.headers["Idempotency-Key"]) > 8
    started = await order.post(f"{ORDERS}/o2", json={"item": "tea"}, headers=key)
    repeated = await order.post(f"{ORDERS}/o2", json={"item": "tea"}, headers=key)
    assert (started.status_code, repeated.status_code) == (201, 200)
    assert repeated.headers["Idempotent-Replayed"] == "true"
    assert kind(await order.post(ORDER, json={"item": "tea"})) == "process-already-exists"


async def test_every_repetition_says_so(order: httpx.AsyncClient) -> None:
    """Of each verb; and each answer names the task that it is of."""
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", ORDER + "2", {"json": {"item": "tea"}}),
        ("POST", f"{ORDER}/calls/echo", {"json": 1}),
        ("POST", f"{ORDER}/calls/refuse", {}),
        ("POST", f"{ORDER}/notices/echo", {"json": 1}),
        ("PATCH", f"{ORDER}/timers/default", {"json": {"after": "PT1H"}}),
        ("POST", f"{ORDER}/timers/default/fire", {}),
        ("DELETE", f"{ORDER}/timers/default", {}),
        ("POST", f"{ORDER}/calls/break", {}),
        ("POST", f"{ORDER}/repairs?simple=true", {}),
        ("POST", f"{ORDER}/calls/break", {"headers": {"Idempotency-Key": "again"}}),
        ("POST", f"{ORDER}/repairs", {"json": {"amount": 1}}),
    ]
    for number, (method, path, sent) in enumerate(asked):
        said = {"headers": {"Idempotency-Key": f"key-{number}"}, **sent}
        first, again = [await order.request(method, path, **said) for _ in range(2)]
        assert "Idempotent-Replayed" not in first.headers, path
        assert again.headers["Idempotent-Replayed"] == "true", path
        for name in ("Idempotency-Key", "Content-Location"):
            assert first.headers[name] == again.headers[name], path
        assert first.content == again.content, path
        task = await order.get(first.headers["Content-Location"], headers={"Prefer": "wait=30"})
        is_notice = "notices" in path
        assert is_notice or (task.content, task.status_code) == (again.content, again.status_code), path


async def test_a_simple_repair_under_anothers_key(order: httpx.AsyncClient) -> None:
    """It is refused; without a key it gets one."""
    key = {"Idempotency-Key": "key"}
    await order.post(f"{ORDER}/calls/break", headers=key)
    refused = await order.post(f"{ORDER}/repairs?simple=true", headers=key)
    assert (refused.status_code, kind(refused)) == (422, "idempotency-conflict")
    assert "Content-Location" not in refused.headers
    repaired = await order.post(f"{ORDER}/repairs?simple=true")
    assert len(repaired.headers["Idempotency-Key"]) > 8


async def test_the_answer_of_who_has_gone(serve: Serve) -> None:
    """A process that removes itself leaves its answers, also to who asks the task's address later."""
    gate, notes = Gate(), Namespace("notes")

    @notes.init
    async def begin(process: Process[Any], args: bool) -> None:
        if not args:
            await gate.pass_through()
            raise Reject("not so")

    @notes.call
    async def burn(process: Process[Any]) -> str:
        await gate.pass_through()
        process.remove()
        return "burnt"

    api = await serve(notes)
    note = "/v1/namespaces/notes/processes/n"
    await api.post(f"{note}1", json=True)
    later = {"Prefer": "respond-async"}
    burnt = await api.post(f"{note}1/calls/burn", headers=later)
    refused = await api.post(f"{note}2", json=False, headers=later)
    assert (burnt.status_code, refused.status_code) == (202, 202)
    gate.open()
    wait = {"Prefer": "wait=30"}
    for _ in range(2):
        assert (await api.get(burnt.headers["Location"], headers=wait)).json() == "burnt"
        told = await api.get(refused.headers["Location"], headers=wait)
        assert (told.status_code, told.json()["reason"]) == (422, "not so")
    for number in (1, 2):
        assert kind(await api.get(f"{note}{number}")) == "process-not-found"
        assert kind(await api.get(f"{note}{number}/tasks/{2**62}")) == "process-not-found"
    # Whom somebody removed is forgotten.
    started = await api.post(f"{note}3", json=True)
    await api.delete(f"{note}3")
    assert kind(await api.get(started.headers["Content-Location"])) == "process-not-found"


async def test_the_end_of_a_trace(order: httpx.AsyncClient) -> None:
    """The last tasks, in their order; not together with a limit."""
    for amount in (1, 2, 3):
        await order.post(f"{ORDER}/calls/pay", json={"amount": amount})
    page = (await order.get(f"{ORDER}/trace", params={"last": 2})).json()
    assert [each["args"] for each in page["tasks"]] == [{"amount": 2}, {"amount": 3}]
    assert page["after"] is None
    assert (await order.get(f"{ORDER}/trace", params={"last": 0})).json() == {
        "tasks": [],
        "after": None,
        "before": None,
    }
    assert kind(await order.get(f"{ORDER}/trace", params={"last": 2, "limit": 2})) == "invalid-request"


async def test_a_hundred_at_once_are_one_step(order: httpx.AsyncClient) -> None:
    """With one key: equal answers, and one task."""
    key = {"Idempotency-Key": "pay-1"}
    asked = [order.post(f"{ORDER}/calls/pay", json={"amount": 3}, headers=key) for _ in range(100)]
    answers = await asyncio.gather(*asked)
    assert {(each.status_code, each.text) for each in answers} == {(200, '"3"')}
    assert len((await order.get(f"{ORDER}/trace")).json()["tasks"]) == 2


async def test_who_does_not_wait_gets_no_answer(
    order: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """202 however soon a new request is answered; a repeated one gets its stored answer."""
    monkeypatch.setattr(api_request, "_AT_ONCE", 30.0)
    later = {"Prefer": "respond-async", "Idempotency-Key": "pay-1"}
    accepted = await order.post(f"{ORDER}/calls/pay", json={"amount": 3}, headers=later)
    assert (accepted.status_code, accepted.headers["Preference-Applied"]) == (202, "respond-async")
    repeated = await order.post(f"{ORDER}/calls/pay", json={"amount": 3}, headers=later)
    assert (repeated.status_code, repeated.json()) == (200, "3")


async def test_who_does_not_wait_asks_the_task(serve: Serve) -> None:
    """202 at acceptance or when the wait is over; the task's address then has the answer."""
    gate = Gate()
    api = await serve(shop.make(gate))
    await api.post(ORDER, json={"item": "tea"})
    accepted = await api.post(f"{ORDER}/calls/wait", headers={"Prefer": "respond-async"})
    assert (accepted.status_code, accepted.headers["Preference-Applied"]) == (202, "respond-async")
    task = accepted.headers["Location"]
    said = accepted.json()
    assert task == f"{ORDER}/tasks/{said['task_id']}?fingerprint={said['fingerprint']}"
    assert int(accepted.headers["Retry-After"]) >= 1
    key = {"Idempotency-Key": accepted.headers["Idempotency-Key"], "Prefer": "wait=0"}
    attached = await api.post(f"{ORDER}/calls/wait", headers=key)
    assert (attached.status_code, attached.headers["Location"]) == (202, task)
    assert attached.headers["Idempotent-Replayed"] == "true"
    assert (await api.get(task)).status_code == 202
    waiting = asyncio.ensure_future(api.get(task, headers={"Prefer": "wait=30"}))
    await gate.entered()
    gate.open()
    answer = await waiting
    assert (answer.status_code, answer.json()) == (200, "waited")
    assert answer.headers["Preference-Applied"] == "wait=30"
    assert (await api.get(task)).json() == "waited"
    assert kind(await api.get(f"{ORDER}/tasks/{2**62}")) == "task-not-found"


async def test_a_notice_is_accepted(order: httpx.AsyncClient) -> None:
    """202 with its task, whose answer is none's business but its own."""
    accepted = await order.post(f"{ORDER}/notices/pay", json={"amount": 2})
    assert accepted.status_code == 202
    done = await order.get(accepted.headers["Location"], headers={"Prefer": "wait=30"})
    assert done.status_code == 200
    assert (await order.get(ORDER)).json()["state"]["paid"] == "2"


async def test_a_refusal_and_a_failure_are_problems(order: httpx.AsyncClient) -> None:
    """With what the handler said; a broken process is repaired, simply or by its handler."""
    refused = await order.post(f"{ORDER}/calls/refuse")
    assert (refused.status_code, kind(refused)) == (422, "rejected")
    assert (refused.json()["reason"], refused.json()["details"]) == ("not today", {"day": "Sunday"})
    assert "Idempotency-Key" in refused.headers
    failed = await order.post(f"{ORDER}/calls/break")
    assert (failed.status_code, kind(failed)) == (500, "handler-failed")
    assert "a secret of the handler" in failed.json()["error"]
    assert kind(await order.post(f"{ORDER}/calls/echo")) == "process-broken"
    assert (await order.post(f"{ORDER}/repairs", params={"simple": True})).json() is None
    assert kind(await order.post(f"{ORDER}/repairs", params={"simple": True})) == "process-not-broken"
    await order.post(f"{ORDER}/calls/break")
    with_body = await order.post(f"{ORDER}/repairs", params={"simple": True}, json={"amount": 1})
    assert with_body.status_code == 422
    both = await order.post(f"{ORDER}/repairs", params={"simple": True, "dry_run": True})
    assert (both.status_code, both.json()["field"]) == (400, "dry_run")
    dry = await order.post(f"{ORDER}/repairs", params={"dry_run": True}, json={"amount": 1})
    assert (dry.json()["answer"], dry.json()["removed"]) == ("mended", False)
    assert (await order.post(f"{ORDER}/repairs", json={"amount": 1})).json() == "mended"


async def test_an_unknown_call_is_refused(order: httpx.AsyncClient) -> None:
    """By its name; and so is a namespace that nobody served."""
    unknown = await order.post(f"{ORDER}/calls/fly")
    assert (kind(unknown), unknown.json()["field"]) == ("invalid-request", "name")
    assert kind(await order.get("/v1/namespaces/nowhere/processes/x")) == "namespace-not-found"


async def test_a_process_is_imported(api: httpx.AsyncClient) -> None:
    """With its history, metadata and timer."""
    given = {
        "state": {"item": "tea"},
        "events": [
            {"name": "placed", "payload": {"item": "tea"}, "timestamp": "2020-01-01T00:00:00Z"},
            {"payload": 2},
        ],
        "metadata": {"shop": "Ulm"},
        "timer": {"after": 3600, "remove": True},
    }
    assert (await api.put(ORDER, json=given)).status_code == 201
    seen = (await api.get(ORDER, params={"history": "first:5"})).json()
    assert (seen["metadata"], seen["timer"]["task_type"]) == ({"shop": "Ulm"}, "remove")
    assert [each["name"] for each in seen["history"]] == ["placed", None]
    assert kind(await api.put(ORDER, json=given)) == "process-already-exists"
    wrong: Any
    for wrong in (7, {"status": "init"}, {"timer": {}}, {"timer": {"after": 1e300}}, {"plan": 1}):
        assert (await api.put(f"{ORDERS}/o2", json=wrong)).status_code == 422, wrong


async def test_histories_and_traces_come_in_pages(order: httpx.AsyncClient) -> None:
    """`after` of one page asks for the next one, without gap or overlap."""
    for amount in range(1, 6):
        await order.post(f"{ORDER}/calls/pay", json={"amount": amount})
    for direction in ("forward", "backward"):
        ids, after = [], 0
        while after is not None:
            params: dict[str, Any] = {"limit": 2, "after": after, "direction": direction}
            page = (await order.get(f"{ORDER}/events", params=params)).json()
            ids += [each["event_id"] for each in page["events"]]
            after = page["after"]
        assert ids == sorted(range(1, 7), reverse=direction == "backward")
    names, after = [], 0
    while after is not None:
        page = (await order.get(f"{ORDER}/trace", params={"limit": 2, "after": after})).json()
        names += [each["name"] or each["task_type"] for each in page["tasks"]]
        after = page["after"]
    assert names == ["init", *["pay"] * 5]


async def test_processes_are_found(api: httpx.AsyncClient) -> None:
    """By namespace, status and metadata, page by page; what is not known is refused."""
    for number in range(3):
        metadata = {"Progressor-Metadata": f'{{"shop": "Ulm", "number": {number}}}'}
        await api.post(f"{ORDERS}/o{number}", json={"item": "tea"}, headers=metadata)
    found, cursor = [], None
    while not found or cursor is not None:
        params = {"namespace": "shop.order", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await api.get("/v1/processes", params=params)).json()
        found += [each["process_id"] for each in page["processes"]]
        cursor = page["cursor"]
    assert found == ["o0", "o1", "o2"]
    (one,) = (await api.get("/v1/processes", params={"metadata": '{"number": 1}'})).json()["processes"]
    assert (one["process_id"], "state" in one) == ("o1", False)
    assert (await api.get("/v1/processes", params={"status": "error"})).json()["processes"] == []
    for wrong in ({"ns": "x"}, {"limit": 0}, {"cursor": "x"}, {"metadata": "x"}, {"status": "x"}):
        assert kind(await api.get("/v1/processes", params=wrong)) == "invalid-request"


async def test_what_is_unchanged_is_not_sent_again(order: httpx.AsyncClient) -> None:
    """A process has a weak tag; 304 while it is the same."""
    tag = (await order.get(ORDER)).headers["ETag"]
    assert tag.startswith('W/"')
    unchanged = await order.get(ORDER, headers={"If-None-Match": f'"x", {tag}'})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["ETag"]) == (304, b"", tag)
    await order.post(f"{ORDER}/calls/pay", json={"amount": 1})
    assert (await order.get(ORDER, headers={"If-None-Match": tag})).status_code == 200


async def test_head_options_and_wrong_methods(order: httpx.AsyncClient) -> None:
    """HEAD is GET without its body, OPTIONS names the methods, and so does the problem of a wrong one."""
    head = await order.head(ORDER)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["ETag"] == (await order.get(ORDER)).headers["ETag"]
    options = await order.options(ORDER)
    assert (options.status_code, options.headers["Allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, POST, PUT")
    wrong = await order.patch(f"{ORDER}/calls/pay")
    assert (kind(wrong), wrong.headers["Allow"]) == ("no-method", "OPTIONS, POST")
    assert kind(await order.get("/v2")) == "no-route"
    assert kind(await order.get(f"{ORDER}/")) == "no-route"


async def test_a_namespace_says_what_it_takes(order: httpx.AsyncClient) -> None:
    """Its schemas, as its workers wrote them."""
    seen = (await order.get("/v1/namespaces/shop.order")).json()
    assert seen["schemas"]["calls"]["pay"]["args"]["required"] == ["amount"]


async def test_a_raw_namespace_takes_and_gives_bytes(serve: Serve) -> None:
    """As application/octet-stream, and nothing else; what is shown as JSON has them as base64."""
    api = await serve(shop.raw())
    url = "/v1/namespaces/shop.raw/processes/r1"
    octets = {"Content-Type": "application/octet-stream"}
    started = await api.post(url, content=b"\x00\xff", headers=octets)
    assert (started.status_code, started.content) == (201, b"\xff\x00")
    assert started.headers["Content-Type"] == "application/octet-stream"
    assert kind(await api.post(f"{url}/calls/x", json=1)) == "wrong-media-type"
    assert (
        kind(await api.post(f"{url}/calls/x", headers={"Accept": "application/json"})) == "not-acceptable"
    )
    seen = (await api.get(url)).json()
    assert (seen["state"], seen["state_base64"]) == (None, "AP8=")
    event = {"payload_base64": "AP8="}
    put = await api.put(f"{url}x", json={"state_base64": "AP8=", "events": [event]})
    assert put.status_code == 201
    refused = await api.put(f"{url}y", json={"state": {"base64": "AP8="}})
    assert (refused.status_code, refused.json()["field"]) == (422, "args.state")
    refused = await api.put(f"{url}y", json={"state_base64": "AP8=", "events": [event, {"payload": 1}]})
    assert refused.json()["field"] == "args.events.1.payload"
    refused = await api.put(f"{url}y", json={"state_base64": "no!"})
    assert refused.json()["field"] == "args.state_base64"
    refused = await api.put(f"{url}y", json={"events": [{"name": "e"}]})
    assert refused.json()["field"] == "args.events.0.payload_base64"


async def test_a_namespace_of_json_takes_no_bytes(api: httpx.AsyncClient) -> None:
    """What an import says in base64 is for raw namespaces: refused by the member's name."""
    refused = await api.put("/v1/namespaces/shop.order/processes/x", json={"state_base64": "AP8="})
    assert (refused.status_code, refused.json()["field"]) == (422, "args.state_base64")


TIMER = f"{ORDER}/timers/default"


async def test_a_timer_is_set_fired_and_unset(order: httpx.AsyncClient) -> None:
    """Each is a step of its own, with its key; the process shows the timer."""
    done = await order.patch(
        TIMER, json={"after": 3600, "remove": True}, headers={"Idempotency-Key": '"k"'}
    )
    assert (done.status_code, done.json(), done.headers["Idempotency-Key"]) == (200, None, '"k"')
    again = await order.patch(
        TIMER, json={"after": 3600, "remove": True}, headers={"Idempotency-Key": '"k"'}
    )
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (await order.get(ORDER)).json()["timer"]["task_type"] == "remove"
    assert (await order.delete(TIMER)).status_code == 200
    assert (await order.get(ORDER)).json()["timer"] is None
    rejected = await order.post(f"{TIMER}/fire")
    assert (kind(rejected), rejected.json()["reason"]) == ("rejected", "the process has no timer")
    await order.patch(TIMER, json={"after": 3600, "remove": True})
    assert (await order.post(f"{TIMER}/fire")).status_code == 200
    async with asyncio.timeout(30):
        while (await order.get(ORDER)).status_code != 404:  # noqa: ASYNC110 - there is no event to wait on
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"after": "soon"}, "/after"),
        ({"at": "2099-01-01T00:00:00"}, "/at"),
        ({"later": 1}, "/later"),
    ],
)
async def test_a_timer_that_is_none_is_refused(order: httpx.AsyncClient, body: Any, pointer: str) -> None:
    """By the field that is wrong; the process keeps what it has."""
    refused = await order.patch(TIMER, json=body)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)
    wrong_rules = (
        {"every": {"moon": 1}},
        {"every": {"cron": "0 0 30 2 *", "tz": "UTC"}},
        {"within": 5, "after": 1},
    )
    for empty in ({}, {"after": 1, "at": "2099-01-01T00:00:00Z"}, {"after": 1e300}, *wrong_rules):
        assert kind(await order.patch(TIMER, json=empty)) == "invalid-args"
    reserved = await order.patch(f"{ORDER}/timers/progressor:x", json={"after": 1})
    assert (reserved.status_code, reserved.json()["field"]) == (400, "timer")


@pytest.mark.parametrize(
    "number", ["1e400", "-1E+0309", "[[1e999]]", "1" + "0" * 400 + ".5", "9" * 250 + "e70"]
)
async def test_a_number_that_is_too_large_is_refused(order: httpx.AsyncClient, number: str) -> None:
    """As NaN is, in whatever JSON travels: nobody could read what was written."""
    headers = {"Content-Type": "application/json"}
    before = (await order.get(f"{ORDER}/trace")).json()["tasks"]
    called = await order.post(f"{ORDER}/calls/echo", content=number, headers=headers)
    assert (called.status_code, kind(called)) == (422, "invalid-args")
    started = await order.post(
        f"{ORDERS}/o2", json={"item": "x"}, headers={"Progressor-Metadata": f'{{"a": {number}}}'}
    )
    assert (started.status_code, kind(started)) == (400, "invalid-request")
    imported = await order.put(
        f"{ORDERS}/o2", content=f'{{"events": [{{"payload": {number}}}]}}', headers=headers
    )
    assert imported.status_code in (400, 422)
    assert (await order.get("/v1/processes", params={"metadata": f'{{"a": {number}}}'})).status_code == 400
    assert (await order.get(f"{ORDER}/trace")).json()["tasks"] == before


@pytest.mark.parametrize("text", ['"e400 1e400"', "1e308", "[1e-400]", '{"1e400": "1e400"}', "0.0001e311"])
async def test_what_looks_like_too_large_a_number_is_kept(order: httpx.AsyncClient, text: str) -> None:
    """In texts, and where it is small in the end."""
    headers = {"Content-Type": "application/json"}
    assert (await order.post(f"{ORDER}/calls/echo", content=text, headers=headers)).status_code == 200


async def test_a_state_is_imported_as_its_namespace_declares_it(api: httpx.AsyncClient) -> None:
    """422 names the field; no state at all may be imported."""
    refused = await api.put(ORDER, json={"state": {"item": 17}})
    assert (refused.status_code, kind(refused)) == (422, "invalid-args")
    assert refused.json()["errors"][0]["pointer"] == "/state/item"
    assert (await api.get(ORDER)).status_code == 404
    assert (await api.put(ORDER, json={"state": {"item": "tea", "paid": 1}})).status_code == 201
    assert (await api.put(f"{ORDERS}/o2", json={"status": "error"})).status_code == 201


@pytest.mark.parametrize("time", ["0.5", "1772236800", "2026-02-28"])
async def test_a_number_is_no_time(order: httpx.AsyncClient, time: str) -> None:
    """Neither in a query nor in a body: whoever sends one means another unit, or another field."""
    refused = await order.get("/v1/processes", params={"created_before": time})
    assert (kind(refused), refused.json()["field"]) == ("invalid-request", "created_before")
    for at in (time, 1772236800):
        timer = await order.patch(f"{ORDER}/timers/default", json={"at": at})
        assert (timer.status_code, timer.json()["field"]) == (422, "args.at")


WITHOUT_KEYS = {
    "put": ("PUT", ORDER),
    "remove": ("DELETE", ORDER),
    "pause": ("POST", "/v1/namespaces/shop.order/pause"),
    "resume": ("POST", "/v1/namespaces/shop.order/resume"),
    "retire": ("POST", "/v1/namespaces/shop.order/retire"),
    "stop_bulk": ("POST", "/v1/bulk/1/stop"),
    "set_group_limit": ("PUT", "/v1/namespaces/shop.order/groups/acme/limit"),
}


@pytest.mark.parametrize("name", WITHOUT_KEYS)
async def test_a_key_that_would_be_ignored_is_refused(order: httpx.AsyncClient, name: str) -> None:
    """Nothing is done, and the problem names the header."""
    method, path = WITHOUT_KEYS[name]
    refused = await order.request(method, path, headers={"Idempotency-Key": "k"})
    assert (refused.status_code, kind(refused)) == (400, "invalid-request")
    assert "Idempotency-Key" in refused.json()["detail"]
    # A read may have one: there is nothing that could be done twice.
    assert (await order.get(ORDER, headers={"Idempotency-Key": "k"})).status_code == 200
