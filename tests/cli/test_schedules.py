"""schedules: listed, paused, resumed, triggered and backfilled, as people and machines read it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from progressor import Engine, ReplyTimeout
from progressor.cli import patience
from tests.cli import planner
from tests.cli.conftest import Ended

Ask = Callable[..., Ended]
NS = "shop.report"
ON = ("schedules", "--namespace", NS)


def test_it_is_listed(ask: Ask) -> None:
    """With its rule, what it sends, and when it is due next."""
    found = next(each for each in ask(*ON, "--json").json if each["name"] == "yearly")
    year = datetime.now(UTC).year + 1
    assert (found["name"], found["next"]) == ("yearly", f"{year}-01-01T00:00:00+00:00")
    assert found["declaration"]["sends"] == f"start {NS}"
    shown = ask(*ON).out
    assert f"{NS}/yearly" in shown
    assert "0 0 1 1 * UTC" in shown
    assert "0 0 2 1 * * UTC" in shown
    assert "True" not in shown
    assert ask("schedules", "--namespace", "shop.cart").err.startswith("no schedule: ")


def test_why_nothing_is_sent(ask: Ask) -> None:
    """A schedule whose function raises is retrying; a pause of their namespace stands below all of them."""
    assert ask("schedules", "trigger", NS, "flawed").status == 0
    found = {}
    while found.get("retrying") is None:
        (found,) = (each for each in ask(*ON, "--json").json if each["name"] == "flawed")
    assert found["retrying"].startswith("ZeroDivisionError: ")
    # While it is tried once more it only waits.
    while "retrying: ZeroDivisionError" not in (listed := " ".join(ask(*ON).out.split())):
        assert "shop.report/flawed 1 wait" in listed
    assert ask("pause", "progressor.schedules", "--reason", "restored").status == 0
    shown = ask(*ON)
    assert ask("resume", "progressor.schedules").status == 0
    assert "nothing is sent: the namespace progressor.schedules is paused: restored" in shown.err


def test_pause_backfill_and_resume(ask: Ask) -> None:
    """Paused it says why, and sends nothing; a backfill starts the reports of past years."""
    assert ask("schedules", "pause", NS, "yearly", "--reason", "audit").status == 0
    assert "paused: audit" in ask(*ON).out
    span = (NS, "yearly", "2019-12-31T00:00Z", "2022-01-01T00:00Z")
    refused = ask("schedules", "backfill", *span)
    assert refused.status == 1
    assert f"error: schedule '{NS}/yearly' refused the request: the schedule is paused" in refused.err
    assert ask("schedules", "resume", NS, "yearly", "--json").out == "null\n"
    assert ask("schedules", "backfill", *span, "--json").json == [
        "2020-01-01T00:00:00+00:00",
        "2021-01-01T00:00:00+00:00",
    ]
    left = [{"waiting": True}]
    while any(each["waiting"] for each in left):
        left = [each for each in ask(*ON, "--json").json if each["name"] == "yearly"]
    for year in (2020, 2021):
        # Sent, and so delivered within the next moments.
        found = Ended(1, "", "")
        while found.status != 0:
            found = ask("get", NS, f"report-{year}", "--json")
        assert found.json["state"] == "sales"


def test_the_last_fan_out_is_listed(ask: Ask) -> None:
    """When its last notice was sent, and how many it was."""
    assert ask("start", NS, "one", '"sales"').status == 0
    assert ask("schedules", "trigger", NS, "notes").status == 0
    found: dict[str, Any] = {}
    while found.get("fanned_out") is None:
        (found,) = (each for each in ask(*ON, "--json").json if each["name"] == "notes")
    sent = found["fanned_out"]["sent"]
    assert sent > 0
    assert f" {sent} processes" in ask(*ON).out


def test_trigger(ask: Ask) -> None:
    """It says of which time it is."""
    assert ask("schedules", "trigger", NS, "yearly").out.startswith(
        f"triggered the schedule yearly of {NS}"
    )


def test_what_nobody_answers(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says after a moment what it waits for, and how to go on; the same key then finds the request."""
    monkeypatch.setattr(patience, "_MOMENT", timedelta(milliseconds=50))
    assert ask("pause", "progressor.schedules").status == 0
    once = ("schedules", "trigger", NS, "yearly", "--idempotency-key", uuid4().hex)
    late = ask(*once, "--timeout", "5")
    silent = ask(*once, "--timeout", "5", "--json")
    assert ask("resume", "progressor.schedules").status == 0
    assert late.status == silent.status == 75
    waits, error = late.err.splitlines()
    assert waits == (
        "the namespace progressor.schedules is paused: `progressor resume progressor.schedules` lets it go "
        "on; the request is kept: Ctrl-C leaves it, and it still runs"
    )
    assert error.startswith(f"error: no reply from schedule '{NS}/yearly' in time")
    assert f"--idempotency-key '{once[-1]}'" in error
    assert json.loads(silent.err)["paused"] is True
    assert ask(*once, "--json").json == ask(*once, "--json").json


async def test_what_no_worker_serves(progressor: Ask, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule whose workers have all gone: their command is named."""
    monkeypatch.setattr(patience, "_MOMENT", timedelta(milliseconds=50))
    async with Engine(dsn, planner.everything):
        pass
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    late = await asyncio.to_thread(progressor, "schedules", "pause", NS, "yearly", "--timeout", "5", **env)
    assert late.status == 75
    assert late.err.startswith(
        "no live worker serves the namespace progressor.schedules: `progressor worker APP` is one; "
    )


@pytest.mark.parametrize(
    ("standing", "says"),
    [
        (
            {"paused": True, "served": False},
            "the namespace shop.order is paused: `progressor resume shop.order`",
        ),
        ({"served": False, "requests_before": 2}, "no live worker serves the namespace shop.order"),
        ({"requests_before": 2}, "waiting for requests that came before it: 2"),
    ],
)
def test_what_a_request_waits_for(standing: dict[str, Any], says: str) -> None:
    """The first thing that somebody has to do, if there is one."""
    late = ReplyTimeout("shop.order", "o1", idempotency_key="key", task_id=7, **standing)
    assert (patience._reason(late) or "").startswith(says)


def test_what_is_wrong(ask: Ask) -> None:
    """A schedule that is not there, and a text that is no time."""
    for command in ("pause", "resume", "trigger"):
        refused = ask("schedules", command, NS, "nix")
        assert refused.status == 1
        assert f"error: no schedule '{NS}/nix'; `progressor schedules` lists those" in refused.err
        assert "progressor.schedules" not in refused.err
    refused = ask("schedules", "pause", "no such", "nix", "--json")
    assert json.loads(refused.err)["error"] == "ScheduleNotFound"
    refused = ask("schedules", "pause", NS, "n" * 300)
    assert (refused.status, "NAMESPACE/NAME must have 1 to 256 characters" in refused.err) == (2, True)
    for span, says in (
        (("yesterday",), "SINCE: it must be a time"),
        (("2022-01-01T00:00Z", "2021-01-01T00:00Z"), "UNTIL: it must be later than SINCE"),
        (("2022-01-01T00:00Z", "2022-01-01T00:00Z"), "UNTIL: it must be later than SINCE"),
        (("2100-01-01T00:00Z",), "SINCE: it must be in the past"),
        (("2100-01-01T00:00Z", "2101-01-01T00:00Z"), "SINCE: it must be in the past"),
    ):
        wrong = ask("schedules", "backfill", NS, "yearly", *span, COLUMNS="200")
        assert (wrong.status, says in wrong.err) == (2, True), wrong.err
    refused = ask("schedules", "pause", NS, "yearly", "--timeout", "0")
    assert (refused.status, "--timeout must be" in refused.err) == (2, True)
