"""Commands that ask: start, call, notify, repair, simple-repair, redo, put, remove, get, trace, search."""

from __future__ import annotations

import json
import re
import signal
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from progressor.acts import AuditVerb
from progressor.cli import demo, options, patience
from progressor.deployment.settings import Settings
from progressor.rights import Scope
from tests.cli.conftest import DEADLINE_SECONDS, NS, Ended, Running, run

Ask = Callable[..., Ended]


@pytest.fixture
def placed(ask: Ask, order: str) -> str:
    """A process that runs."""
    assert ask("start", NS, order, '{"item": "tea"}').status == 0
    return order


@pytest.fixture
def broken(ask: Ask, placed: str) -> str:
    """A process that broke."""
    assert ask("call", NS, placed, "lose").status == 1
    return placed


def test_start_and_call(ask: Ask, order: str) -> None:
    """They print what the handler answered, and what was given arrives."""
    started = ask("start", NS, order, '{"item": "tea"}', "--metadata", '{"color": "green"}')
    assert started == (0, f"started {NS}/{order}\n", "")
    assert ask("call", NS, order, "pay", '{"amount": 10}') == (0, "10\n", "")
    assert ask("call", NS, order, "pay", '{"amount": 5}', "--json") == (0, "15\n", "")
    found = ask("get", NS, order, "--json").json
    assert found["state"] == {"item": "tea", "paid": 15}
    assert found["metadata"] == {"color": "green", "item": "tea"}


def test_the_same_key_does_nothing_twice(ask: Ask, placed: str) -> None:
    """The stored answer is printed again; another request under the key is a conflict."""
    for _ in range(2):
        paid = ask("call", NS, placed, "pay", '{"amount": 10}', "--idempotency-key", "k1")
        assert (paid.status, paid.out) == (0, "10\n")
    other = ask("call", NS, placed, "pay", '{"amount": 11}', "--idempotency-key", "k1", "--json")
    assert other.status == 1
    assert json.loads(other.err)["error"] == "IdempotencyConflict"


def test_a_request_expires(ask: Ask, placed: str) -> None:
    """Who asks from outside has to wait for a worker, and here does not want to."""
    assert ask("call", NS, placed, "pay", '{"amount": 1}', "--expires", "PT1H").out == "1\n"
    late = ask("call", NS, placed, "pay", '{"amount": 1}', "--expires", "0.000001", "--json")
    assert (late.status, json.loads(late.err)["error"]) == (1, "Expired")
    assert ask("notify", NS, placed, "pay", '{"amount": 1}', "--expires", "0.000001").status == 0
    assert ask("call", NS, placed, "pay", '{"amount": 1}').out == "2\n"
    assert "expired: it was not begun by " in ask("trace", NS, placed).out
    wrong = ask("call", NS, placed, "pay", '{"amount": 1}', "--expires", "0")
    assert (wrong.status, "expires must be above 0" in wrong.err) == (2, True)


def test_a_request_has_a_priority(ask: Ask, order: str) -> None:
    """Each command that makes one takes it."""
    assert ask("start", NS, order, '{"item": "tea"}', "--priority", "-3").status == 0
    assert ask("call", NS, order, "pay", '{"amount": 1}', "--priority", "5").out == "1\n"
    assert ask("notify", NS, order, "pay", '{"amount": 1}', "--priority", "10").status == 0
    found = ask("trace", NS, order, "--json").json
    assert [entry["priority"] for entry in found] == [-3, 5, 10]
    assert "priority 5" in ask("trace", NS, order).out
    wrong = ask("call", NS, order, "pay", '{"amount": 1}', "--priority", "11")
    assert (wrong.status, "priority must be from -10 to 10" in wrong.err) == (2, True)


def test_args_come_from_text_file_and_stdin(ask: Ask, placed: str, tmp_path: Path) -> None:
    """All three are JSON, and the context goes along."""
    file = tmp_path / "args.json"
    file.write_text('["file"]')
    context = ("--context", '{"user": "me"}', "--timeout", "PT20S", "--json")
    for args, stdin, expected in (
        ('"text"', "", "text"),
        (f"@{file}", "", ["file"]),
        ("-", '{"from": "stdin"}', {"from": "stdin"}),
    ):
        answer = ask("call", NS, placed, "echo", args, *context, stdin=stdin)
        assert answer.json == {"args": expected, "context": {"user": "me"}}, answer.err


def test_notify_waits_for_no_answer(ask: Ask, placed: str) -> None:
    """It says that the call was accepted."""
    accepted = ask("notify", NS, placed, "pay", '{"amount": 3}')
    assert accepted == (0, f"accepted pay for {NS}/{placed}\n", "")
    # Calls run in their order: this one is behind it.
    assert ask("call", NS, placed, "pay", '{"amount": 1}').out == "4\n"


def test_repair(ask: Ask, broken: str) -> None:
    """A broken process says why and what to do; once repaired it is not broken any more."""
    refused = ask("call", NS, broken, "pay", '{"amount": 1}')
    assert refused.status == 1
    assert "is broken: ValueError: the parcel is lost; see why with `progressor trace`" in refused.err
    assert ask("repair", NS, broken, '{"who": "postman"}').out == '"found by postman"\n'
    again = ask("repair", NS, broken, '{"who": "postman"}')
    assert (again.status, "is not broken" in again.err) == (1, True)


def test_a_dry_run_of_a_repair(ask: Ask, broken: str) -> None:
    """It shows what a repair would do, for people and for machines, and changes nothing."""
    run = ask("repair", NS, broken, '{"who": "postman"}', "--dry-run", "--json")
    assert (run.json["answer"], run.json["events"][0]["payload"]) == ("found by postman", {"by": "postman"})
    shown = ask("repair", NS, broken, '{"who": "postman"}', "--dry-run").out
    assert shown.startswith("a repair would do this; nothing is changed\nanswer  found by postman\n")
    assert "state  it stays as it is" in shown
    assert re.search(r'event +payload\s+found +\{"by": "postman"\}', shown)
    assert "timers after it  none\nmessages  none" in shown
    assert ask("get", NS, broken, "--json").json["status"] == "error"


def test_simple_repair(ask: Ask, broken: str) -> None:
    """It puts the process back without a handler's answer."""
    assert ask("simple-repair", NS, broken, "--json") == (0, "null\n", "")
    assert ask("get", NS, broken, "--json").json["status"] == "running"


def test_redo(ask: Ask, placed: str) -> None:
    """A call is run again once, and the trace shows both; what cannot be is refused."""
    assert ask("call", NS, placed, "pay", '{"amount": 3}').out == "3\n"
    init, old = (str(each["task_id"]) for each in ask("trace", NS, placed, "--json").json)
    assert ask("redo", NS, placed, old).out == "6\n"
    assert ask("redo", NS, placed, old, "--json").json == 6
    redo = ask("trace", NS, placed, "--json").json[-1]
    assert redo["redoes"] == int(old)
    shown = ask("trace", NS, placed).out
    assert f"redoes task {old}" in shown
    assert f"redone by task {redo['task_id']}" in shown
    for task, status in ((init, 2), ("0", 2), (str(10**9), 1)):
        assert ask("redo", NS, placed, task).status == status
    assert "has no such task" in ask("redo", NS, placed, str(10**9)).err


def test_timers(ask: Ask, placed: str) -> None:
    """One is set, cancelled, and fired before its time; one that is not there is refused."""
    done = ask("set-timer", NS, placed, "--after", "P30D", "--remove")
    assert done == (0, f"set the timer of {NS}/{placed}\n", "")
    assert ask("get", NS, placed, "--json").json["timer"]["task_type"] == "remove"
    assert ask("unset-timer", NS, placed, "--json") == (0, "null\n", "")
    assert ask("get", NS, placed, "--json").json["timer"] is None
    assert ask("set-timer", NS, placed, "dunning", "--after", "P30D", "--remove").status == 0
    others = f"{NS}/{placed} had no timer duning when this was asked; its timers: dunning\n"
    assert ask("unset-timer", NS, placed, "duning") == (0, others, "")
    done = f"unset the timer dunning of {NS}/{placed}\n"
    assert ask("unset-timer", NS, placed, "dunning") == (0, done, "")
    none = f"{NS}/{placed} had no timer when this was asked; its timers: none\n"
    assert ask("unset-timer", NS, placed) == (0, none, "")
    refused = ask("fire-timer", NS, placed)
    assert (refused.status, "no timer" in refused.err) == (1, True)
    at = ("--at", "2100-01-01T00:00:00+00:00", "--remove", "--idempotency-key", "later")
    assert ask("set-timer", NS, placed, *at).status == ask("set-timer", NS, placed, *at).status == 0
    assert ask("fire-timer", NS, placed) == (0, f"fired the timer of {NS}/{placed}\n", "")
    for wrong in ([], ["--at", "2100-01-01", "--after", "5"], ["--after", "soon"]):
        assert ask("set-timer", NS, placed, *wrong).status == 2


@pytest.mark.parametrize(
    ("given", "due", "rule"),
    [
        (
            ["--every", "0 9 1 1 *", "--tz", "Europe/Berlin", "--at", "2100-01-01T08:30:00Z"],
            "2101-01-01T08:00:00+00:00",
            "every 0 9 1 1 * Europe/Berlin, then 2102-01-01 ",
        ),
        (
            ["--every", "P1D", "--at", "2100-01-01T08:00:00Z", "--catch-up", "all"],
            "2100-01-01T08:00:00+00:00",
            "every 86400 s, then 2100-01-02 ",
        ),
        (
            ["--every", "P1D", "--at", "2100-01-01T08:00:00Z", "--drift", "after"],
            "2100-01-01T08:00:00+00:00",
            "every 86400 s, from the end of its step",
        ),
        (
            ["--every", "FREQ=MONTHLY;BYMONTHDAY=-1", "--at", "2100-02-01T08:00:00Z"],
            "2100-02-28T08:00:00+00:00",
            "every FREQ=MONTHLY;BYMONTHDAY=-1 2100-02-01T08:00:00 UTC, then 2100-03-31 ",
        ),
        (
            ["--every", "0 3 * * *", "--at", "2100-01-01T00:00:00Z", "--between", "08:00-18:00"],
            "2100-01-01T08:00:00+00:00",
            "every 0 3 * * * UTC, for 2100-01-01 ",
        ),
        (["--at", "2100-01-01T03:00:00Z", "--between", "08:00-18:00"], "2100-01-01T08:00:00+00:00", None),
    ],
)
def test_timers_that_recur(ask: Ask, placed: str, given: list[str], due: str, rule: str | None) -> None:
    """By a period, cron or RRULE, and within hours of the day; their rules are shown."""
    done = ask("set-timer", NS, placed, "invoice", *given)
    assert (done.status, done.err) == (0, "")
    (timer,) = ask("get", NS, placed, "--json").json["timers"]
    assert (timer["name"], timer["due"]) == ("invoice", due)
    assert (timer["every"] is None) == (timer["nominal"] is None) == (rule is None)
    shown = ask("get", NS, placed).out
    assert (rule or "invoice: timeout due") in shown
    assert ("every" in shown) == (rule is not None)
    traced = " ".join(ask("trace", NS, placed).out.split())
    assert (rule or "").partition(",")[0] in traced
    assert "nominal" not in traced


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--every", "0 9 30 2 *"], "day-of-month of cron cannot be '30'"),
        (["--every", "FREQ=DAILY"], "give it"),
        (["--every", "P1D", "--catch-up", "some"], "--catch-up must be"),
        (["--after", "5", "--between", "8 to 9"], "two times"),
        (["--after", "5", "--between", "08:00-09:00", "--tz", "Mars"], "no time zone 'Mars'"),
        (["--after", "5", "--within", "5"], "need --every"),
        (["--after", "3600", "--tz", "Nowhere/X"], "it is the time zone of --between"),
        (["--every", "P1D", "--tz", "Europe/Berlin"], "it is the time zone of --between"),
        (["--after=-5"], "it must be 0 or more"),
        (["--after=-PT5S", "--remove"], "it must be 0 or more"),
    ],
)
def test_rules_that_are_none(ask: Ask, placed: str, wrong: list[str], said: str) -> None:
    """Refused before anything is asked."""
    refused = ask("set-timer", NS, placed, *wrong)
    text = " ".join(refused.err.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", "").split())
    assert (refused.status, said in text) == (2, True), text


def test_put_and_remove(ask: Ask, order: str) -> None:
    """A process is imported with state, events and timer, lives on, and is gone when it is removed."""
    events = '[{"name": "placed", "payload": {"item": "tea"}}]'
    state = '{"item": "tea", "paid": 7}'
    later = ("--timer-after", "P30D")
    imported = ask("put", NS, order, state, "--events", events, "--metadata", '{"old": true}', *later)
    assert imported == (0, f"imported {NS}/{order}\n", "")
    found = ask("get", NS, order, "--json").json
    assert (found["state"]["paid"], found["history"][0]["name"]) == (7, "placed")
    assert ask("call", NS, order, "pay", '{"amount": 1}').out == "8\n"
    assert ask("remove", NS, order, "--yes") == (0, f"removed {NS}/{order}\n", "")
    gone = ask("get", NS, order)
    assert gone.status == 1
    assert gone.err.startswith(f"error: no process '{NS}/{order}'; `progressor search`")


def test_remove_asks_first(ask: Ask, placed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal; without one it needs --yes, and nothing is removed."""
    unasked = ask("remove", NS, placed, COLUMNS="200")
    assert (unasked.status, "there is no terminal to ask in" in unasked.err) == (2, True)
    monkeypatch.setattr(options, "_is_terminal", lambda: True)
    refused = ask("remove", NS, placed, stdin="n\n")
    assert (refused.status, f"Delete {NS}/{placed}" in refused.err) == (1, True)
    assert ask("get", NS, placed).status == 0
    assert ask("remove", NS, placed, stdin="y\n").status == 0
    assert ask("get", NS, placed).status == 1


def test_what_matches_is_exported_and_removed(ask: Ask, order: str) -> None:
    """All of a customer, and nobody else's; first looked at, and with a receipt of each."""
    mine, other = f'{{"customer": "{order}"}}', f'{{"customer": "{order}-other"}}'
    for n, customer in enumerate((mine, mine, other)):
        whose = ("--metadata", customer, "--events", '[{"name": "a"}]')
        ask("put", NS, f"{order}-{n}", '{"item": "tea"}', *whose)
    assert ask("call", NS, f"{order}-0", "pay", '{"amount": 2}').out == "2\n"
    exported = ask("export", NS, "--metadata", mine)
    lines = [json.loads(each) for each in exported.out.splitlines()]
    of_first = [each for each in lines if each.get("process_id") == f"{order}-0"]
    assert [each["kind"] for each in of_first] == ["process", "task", "task", "event", "event", "end"]
    assert {each["process_id"] for each in lines[1:-1]} == {f"{order}-0", f"{order}-1"}
    assert (of_first[2]["name"], of_first[2]["response"]) == ("pay", 2)
    assert of_first[3]["metadata"] == {"name": "a"}
    assert "2 processes" in exported.err
    one = [json.loads(each) for each in ask("export", NS, f"{order}-2").out.splitlines()]
    assert {each["process_id"] for each in one[1:-1]} == {f"{order}-2"}
    for pair in (f"customer={order}", f'customer="{order}"'):
        assert ask("remove", NS, "--metadata", pair, "--dry-run", "--json").json["processes"] == 2, pair
    look = ask("remove", NS, "--metadata", mine, "--dry-run", "--json").json
    assert (look["processes"], look["examples"]) == (2, [f"{order}-0", f"{order}-1"])
    assert "2 processes match" in ask("remove", NS, "--metadata", mine, "--dry-run").out
    assert ask("remove", NS, "--metadata", mine).status == 2, "nobody was asked"
    receipts = [
        json.loads(each)
        for each in ask("remove", NS, "--metadata", mine, "--yes", "--json").out.splitlines()
    ]
    assert [each["process_id"] for each in receipts] == [f"{order}-0", f"{order}-1"]
    assert all(each["events"] >= 1 for each in receipts)
    head, tail = map(json.loads, ask("export", NS, "--metadata", mine).out.splitlines())
    assert (head["kind"], tail) == ("head", {"kind": "tail", "processes": 0})
    assert ask("get", NS, f"{order}-2").status == 0
    gone = ask("remove", NS, "--metadata", other, "--yes").out
    assert gone == f"removed 1 process of {NS}, with 1 event\n"
    assert ask("remove", NS).status == 2
    assert ask("remove", NS, "x", "--metadata", mine).status == 2
    for empty in ("{}", "null"):
        assert ask("remove", NS, "--metadata", empty, "--status", "running", "--dry-run").status == 2


def test_get_for_people(ask: Ask, placed: str) -> None:
    """Without a limit a person sees the newest events, the oldest of them first."""
    assert ask("call", NS, placed, "pay", '{"amount": 10}').status == 0
    shown = ask("get", NS, placed).out
    assert f"{NS}/{placed}" in shown
    assert "running since" in shown
    assert '"paid": 10' in shown
    assert shown.index("placed") < shown.index("paid  ")
    some = ask("get", NS, placed, "--limit", "1", "--direction", "backward", "--json").json
    assert [event["event_id"] for event in some["history"]] == [2]


def test_trace(ask: Ask, broken: str) -> None:
    """Every task with what came of it, whole or in part, for machines and for people."""
    entries = ask("trace", NS, broken, "--json").json
    assert [(each["task_type"], each["name"], each["status"]) for each in entries] == [
        ("init", None, "finished"),
        ("call", "lose", "error"),
    ]
    assert entries[0]["events"][0]["payload"] == {"item": "tea"}
    assert entries[1]["error"] == "ValueError: the parcel is lost"
    shown = ask("trace", NS, broken).out
    assert "call lose" in shown
    assert "the parcel is lost" in shown
    after = ask("trace", NS, broken, "--after", str(entries[0]["task_id"]), "--limit", "1", "--json")
    assert [each["name"] for each in after.json] == ["lose"]
    assert [each["name"] for each in ask("trace", NS, broken, "--last", "1", "--json").json] == ["lose"]
    both = ask("trace", NS, broken, "--last", "1", "--limit", "1")
    assert (both.status, "give one of limit and last" in both.err) == (2, True)


def test_search(ask: Ask, broken: str) -> None:
    """By namespace, status and metadata; that nothing was found is said apart from results."""
    found = ask("search", "--namespace", NS, "--status", "error", "--metadata", '{"item": "tea"}', "--json")
    assert broken in [each["process_id"] for each in found.json["items"]]
    assert broken in ask("search", "-n", NS, "-s", "error").out
    for command in (("search",), ("remove", NS), ("put", NS, "new"), ("repair", "-n", NS)):
        wrong = " ".join(ask(*command, "--status", "broken").err.replace("│", " ").split())
        assert "'broken' is not" in wrong
        assert "broken processes have the status error" in wrong
    assert "not one of init, running" in ask("search", "-s", "gone").err
    assert ask("search", "--created-before", "2020-01-01").err == "no process found\n"
    unknown = ask("search", "-n", "shop.nowhere")
    assert (unknown.status, "namespace 'shop.nowhere' is not known" in unknown.err) == (1, True)


def test_timers_are_shown_and_searched_by(ask: Ask, order: str) -> None:
    """Kind, due time and how it stands, for people and for machines."""
    assert ask("put", NS, order, '{"item": "tea"}', "--timer-at", "2100-01-31T12:00:00Z").status == 0
    due, once = "2100-01-31T12:00:00+00:00", dict.fromkeys(("every", "drift", "nominal", "next"))
    waiting = {"task_type": "timeout", "due": due, "status": "waiting", "name": "", **once}
    shown = ask("get", NS, order, "--json").json
    assert (shown["timer"], shown["timers"]) == (waiting, [waiting])
    assert order not in ask("search", "-n", NS, "--timer", "held").out
    assert ask("call", NS, order, "lose").status == 1
    assert ask("get", NS, order, "--json").json["timer"] == {**waiting, "status": "held"}
    assert "timeout due 2100-01-31" in ask("get", NS, order).out
    assert ("timeout", "held") in [
        (each["task_type"], each["status"]) for each in ask("trace", NS, order, "--json").json
    ]
    shown = ask("search", "-n", NS, "--timer", "held").out
    assert order in shown
    assert "held" in shown
    found = ask("search", "-n", NS, "--timer", "held", "--json").json["items"]
    assert [each["timer"]["status"] for each in found] == ["held"] * len(found)
    assert ask("search", "-n", NS, "--timer", "overdue").err == "no process found\n"
    assert order not in ask("search", "-n", NS, "--timer", "none").out
    assert ask("simple-repair", NS, order).status == 0
    assert ask("get", NS, order, "--json").json["timer"] == waiting
    assert ask("search", "--timer", "~soon").status == 2


def test_search_goes_on_where_a_page_ended(ask: Ask, placed: str) -> None:
    """With the cursor that the page before gave."""
    assert ask("start", "shop.cart", placed).status == 0
    page = ask("search", "--limit", "1", "--json").json
    following = ask("search", "--limit", "1", "--cursor", page["cursor"], "--json").json
    assert following["items"][0]["process_id"] != page["items"][0]["process_id"] or (
        following["items"][0]["namespace"] != page["items"][0]["namespace"]
    )
    assert "--cursor" in ask("search", "--limit", "1").err


def test_errors_for_machines_are_typed(ask: Ask, placed: str) -> None:
    """On stderr as JSON, with the error's own attributes."""
    refused = ask("call", NS, placed, "pay", '{"amount": 0}', "--json")
    assert (refused.status, refused.out) == (1, "")
    error = json.loads(refused.err)
    assert error["error"] == "Rejected"
    assert error["reason"] == "amount must be positive"
    assert error["details"] == {"minimum": 1}


def test_errors_for_people_are_one_line(ask: Ask, placed: str) -> None:
    """With the reason and the details of the refusal."""
    refused = ask("call", NS, placed, "pay", '{"amount": 0}')
    assert refused.status == 1
    assert refused.err == (
        f"error: process '{NS}/{placed}' refused the request: amount must be positive; {{\"minimum\": 1}}\n"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("start", NS, "p", "{item"), "it is not JSON"),
        (("start", NS, "p", "NaN"), "there is no NaN in JSON"),
        (("start", NS, "p", '{"a": 1e400}'), "a double cannot hold 1e400"),
        (("start", NS, "p", "@/nowhere.json"), "cannot be read"),
        (("start", NS, "p", "--metadata", "[1]"), "must be key=value, or a JSON object"),
        (("start", NS, "p", "--timeout", "soon"), "must be a duration"),
        (("put", NS, "p", "--events", "{}"), "must be a JSON list"),
        (("put", NS, "p", "--timer-at", "x"), "must be a time in ISO 8601"),
        (("put", NS, "p", "--timer-after=-5"), "--timer-after: it must be 0 or more"),
        (("put", NS, "p", "--timer-at", "2030-01-01", "--timer-after", "1"), "give one of"),
        (("search", "--status", "happy"), "'happy' is not one of"),
        (("call", NS, "p"), "Missing argument"),
        (("fly",), "No such command"),
    ],
)
def test_usage_errors(progressor: Ask, args: tuple[str, ...], says: str) -> None:
    """What cannot be understood needs no database, and has a status of its own."""
    wrong = progressor(*args, COLUMNS="200")
    assert wrong.status == 2
    assert says in wrong.err


@pytest.mark.parametrize(
    "args",
    [
        ("search", "--cursor", "zzz"),
        ("search", "--limit", "5000"),
        ("get", NS, ""),
        ("call", NS, "p", "pay", "1", "--timeout", "0"),
    ],
)
def test_what_would_be_wrong_again_has_the_status_of_a_usage_error(ask: Ask, args: tuple[str, ...]) -> None:
    """Also where the client finds it, not the parser of the command line."""
    wrong = ask(*args)
    assert (wrong.status, wrong.err.startswith("error: ")) == (2, True)


def test_a_wrong_url_is_a_usage_error(progressor: Ask) -> None:
    """It says how to write one, and shows no password."""
    wrong = progressor("search", PROGRESSOR_DATABASE_URL="mysql://u:s3cr3t@h/db")
    assert (wrong.status, "write it like postgresql://" in wrong.err) == (2, True)
    assert "s3cr3t" not in wrong.err


def test_the_url_may_be_spelt_as_sqlalchemy_does(ask: Ask, progressor: Ask, shop: str) -> None:
    """With the name of a driver."""
    url = psycopg.conninfo.conninfo_to_dict(shop)
    spelt = f"postgresql+psycopg://{url['user']}@/{url['dbname']}?host={url['host']}"
    port = f"&port={url['port']}" if "port" in url else ""
    assert progressor("search", "--limit", "1", PROGRESSOR_DATABASE_URL=spelt + port).status == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("PROGRESSOR_DATABSE_URL", "did you mean PROGRESSOR_DATABASE_URL?"),
        ("PROGRESSOR_XYZZY", "PROGRESSOR_XYZZY is no setting\n"),
        ("PROGRESSOR_METRIC_PORT", "did you mean PROGRESSOR_METRICS_PORT?"),
    ],
)
def test_an_unknown_variable_is_named(ask: Ask, name: str, says: str) -> None:
    """As a warning, with the setting that was probably meant."""
    done = ask("search", "--limit", "1", **{name: "x"})
    assert done.status == 0
    assert f"warning: {name} is no setting" in done.err
    assert says in done.err


def test_what_kubernetes_sets_beside_a_service_is_no_misspelling(ask: Ask) -> None:
    """A service called progressor brings variables of its own, and so does one called progressor-api."""
    links = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "80",
        "SERVICE_PORT_HTTP": "80",
        "PORT": "tcp://10.0.0.1:80",
        "PORT_80_TCP": "tcp://10.0.0.1:80",
        "PORT_80_TCP_PROTO": "tcp",
        "PORT_80_TCP_PORT": "80",
        "PORT_80_TCP_ADDR": "10.0.0.1",
    }
    variables = {
        f"{service}_{name}": value
        for service in ("PROGRESSOR", "PROGRESSOR_API")
        for name, value in links.items()
    }
    found = ask("search", "--created-before", "2020-01-01", **variables)
    assert found == (0, "", "no process found\n")


def test_the_schema_is_an_option_too(ask: Ask) -> None:
    """Where there are no tables, it says how to make them."""
    elsewhere = ask("search", "--database-schema", "elsewhere")
    assert elsewhere.status == 1
    assert "progressor migrate" in elsewhere.err


def test_ctrl_c_leaves_at_once(
    ask: Ask, shop: str, placed: str, spawn: Callable[..., Running], tmp_path: Path
) -> None:
    """A command that waits for an answer says 130 and nothing else; what it asked for goes on."""
    gate = tmp_path / "gate"
    waiting = spawn("call", NS, placed, "wait", json.dumps(str(gate)), PROGRESSOR_DATABASE_URL=shop)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while ask("trace", NS, placed, "--json").json[-1]["status"] != "running":
        assert time.monotonic() < deadline, "the call does not run"
    waiting.signal(signal.SIGINT)
    assert (waiting.end(), waiting.output) == (130, "")
    gate.touch()
    assert ask("call", NS, placed, "echo", "1").status == 0
    assert ask("trace", NS, placed, "--json").json[-2]["response"] == "waited"


def test_a_wrong_setting_is_a_usage_error(progressor: Ask) -> None:
    """It names the variable and the rule."""
    wrong = progressor("search", PROGRESSOR_PATIENCE="ages", COLUMNS="200")
    assert wrong.status == 2
    assert "PROGRESSOR_PATIENCE: Input should be a duration" in wrong.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("worker", "planner", "--processes", "-1"), "--processes: Input should be greater than"),
        (("worker", "planner", "--concurrency", "0"), "--concurrency: Input should be greater than"),
        (("worker", "planner", "--max-steps", "0"), "--max-steps: Input should be greater than"),
        (("scanner", "--metrics-port", "99999"), "--metrics-port: Input should be less than"),
        (("search", "--log-level", "loud"), "--log-level: Input should be"),
        (("search", "--database-schema", "No!"), "--database-schema: must be"),
        (("api", "--concurrency", "0"), "--concurrency: Input should be greater than"),
        (("token", "create", "a", "--scope", "all", "-n", "*", "--expires", "0"), "--expires: it must be"),
        (("token", "create", "a", "--scope", "all", "-n", "*", "--expires=-1"), "days, or never"),
    ],
)
def test_an_option_is_named_as_it_was_typed(progressor: Ask, args: tuple[str, ...], says: str) -> None:
    """Where it sets what a variable sets too; that of the variable is named by the variable."""
    wrong = progressor(*args, COLUMNS="200")
    assert (wrong.status, says in wrong.err, "PROGRESSOR_" in wrong.err) == (2, True, False), wrong.err
    at_home = progressor("worker", "planner", COLUMNS="200", PROGRESSOR_PROCESSES="-1")
    assert (at_home.status, "PROGRESSOR_PROCESSES: Input should be" in at_home.err) == (2, True)


def test_all_names_are_listed_where_there_are_no_others(ask: Ask) -> None:
    """Of scopes, and of the verbs of the audit: who mistypes one learns all of them."""
    scopes = ask("token", "create", "a", "--scope", "process:read", "-n", "*")
    verbs = ask("audit", "--verb", "paus")
    for wrong, known in ((scopes, Scope), (verbs, AuditVerb)):
        assert (wrong.status, [each for each in known if each not in wrong.err]) == (2, [])
        assert "more" not in wrong.err


def test_unknown_namespace(ask: Ask) -> None:
    """That no worker ever served it is told apart from a process that is not there."""
    unknown = ask("start", "shop.nowhere", "p")
    assert unknown.status == 1
    assert "namespace 'shop.nowhere' is not known in this database" in unknown.err


@pytest.mark.parametrize("command", [("start",), ("call", "pay", '{"amount": 1}')], ids=["start", "call"])
def test_what_waits_says_for_what(
    ask: Ask, order: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment, for people; the same key finds the request, and prints its answer."""
    monkeypatch.setattr(patience, "_MOMENT", timedelta(milliseconds=50))
    verb, *rest = command
    if verb != "start":
        assert ask("start", NS, order, '{"item": "tea"}').status == 0
    asked = (verb, NS, order, *(rest or ['{"item": "tea"}']), "--idempotency-key", "once", "--timeout", "2")
    assert ask("pause", NS).status == 0
    late = ask(*asked)
    assert ask("resume", NS).status == 0
    assert late.status == 75
    assert late.err.startswith(f"the namespace {NS} is paused: `progressor resume {NS}` lets it go on; ")
    assert ask(*asked).status == 0


@pytest.mark.parametrize("who", ["itself", "another"])
def test_a_step_that_runs_long_is_said_to_run(
    ask: Ask, placed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """On its worker: no worker is missing, whether it is the request's own step or one of its process."""
    monkeypatch.setattr(patience, "_MOMENT", timedelta(milliseconds=500))
    wait = ("call", NS, placed, "wait", json.dumps(str(tmp_path / who)), "--timeout", "1")
    late = ask(*wait)
    assert (late.status, late.err.startswith("it runs on worker ")) == (75, True)
    if who == "another":
        behind = ask("call", NS, placed, "pay", '{"amount": 1}', "--timeout", "1")
        assert behind.err.startswith("waiting for the step that runs on its process, on worker ")
    (tmp_path / who).touch()


def test_no_answer_in_time_may_be_asked_again(ask: Ask, placed: str, tmp_path: Path) -> None:
    """Status 75; the same key then gets the answer."""
    gate = tmp_path / "gate"
    wait = ("call", NS, placed, "wait", json.dumps(str(gate)), "--idempotency-key", "w1")
    late = ask(*wait, "--timeout", "0.2")
    assert late.status == 75
    assert "ask again with --idempotency-key 'w1'" in late.err
    gate.touch()
    assert ask(*wait).out == '"waited"\n'


def test_no_database_may_be_asked_again() -> None:
    """An exit status of its own says that repeating may help."""
    lost = run("search", PROGRESSOR_DATABASE_URL="postgresql://postgres@127.0.0.1:1/db")
    assert lost.status == 75
    assert lost.err.startswith("error: PostgreSQL cannot be reached")


def test_control_characters_are_shown_not_sent(ask: Ask, order: str) -> None:
    """What stands in the database cannot steer the terminal of who looks at it."""
    assert ask("start", NS, order, json.dumps({"item": "\x1b[2Jtea"})).status == 0
    for command in ("get", "trace"):
        shown = ask(command, NS, order).out
        assert "\x1b" not in shown
        assert "\\x1b[2Jtea" in shown or "\\u001b[2Jtea" in shown


@pytest.mark.parametrize("command", [("search",), ("get", NS, "x"), ("start", NS, "x"), ("doctor",)])
def test_where_nobody_made_a_database_none_is_made(
    progressor: Callable[..., Ended], tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Who asks in the wrong folder is told so, and no server is started for him."""
    asked = progressor(*command, PROGRESSOR_DATA_DIR=str(tmp_path / "data"))
    assert (asked.status, asked.out) == (2, "")
    assert f"nobody made an embedded one in {tmp_path / 'data'}" in asked.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("given", "used"), [({}, "demo"), ({"PROGRESSOR_DATA_DIR": "/srv/mine"}, "mine")])
def test_the_demo_has_data_of_its_own(
    progressor: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, given: dict[str, str], used: str
) -> None:
    """Its customers are not among the processes of a folder, unless that is asked for."""
    monkeypatch.delenv("PROGRESSOR_DATA_DIR")
    seen: list[Path | None] = []

    def stop(settings: Settings, *_: object, **__: object) -> None:
        seen.append(settings.data_dir)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_run", stop)
    assert progressor("demo", **given).status == 130
    assert [path and path.name for path in seen] == [used]


def test_bytes_stand_in_members_of_their_own(
    progressor: Ask, spawn: Callable[..., Running], dsn: str
) -> None:
    """Of a raw namespace: in base64. JSON that looks so is JSON; an answer in bytes is as it is."""
    spawn("worker", "raws", PROGRESSOR_DATABASE_URL=dsn).wait_for("serving")

    def ask(*args: str) -> Ended:
        return progressor(*args, PROGRESSOR_DATABASE_URL=dsn)

    assert ask("start", "shop.raw", "r", '{"base64": "AP8="}').out == '{"base64":"AP8="}'
    held = b64encode(b'{"base64":"AP8="}').decode()
    seen = ask("get", "shop.raw", "r", "--json").json
    assert (seen["state"], seen["state_base64"]) == (None, held)
    assert seen["history"][0]["payload_base64"] == held
    (entry,) = ask("trace", "shop.raw", "r", "--json").json
    assert (entry["args"], entry["args_base64"], entry["response_base64"]) == (None, held, held)
    assert entry["events"][0]["payload_base64"] == held
    (item,) = ask("search", "--json").json["items"]
    assert item["state_base64"] == held
    assert "AP8=" in ask("get", "shop.raw", "r").out
