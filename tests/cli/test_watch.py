"""`progressor watch`: a process as it changes, on the terminal or as lines of JSON."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from tests.cli.conftest import NS, Ended, Running

Ask = Callable[..., Ended]


@pytest.fixture
def placed(ask: Ask, order: str) -> str:
    """A process that runs."""
    assert ask("start", NS, order, '{"item": "tea"}').status == 0
    return order


def test_until_it_is_removed(ask: Ask, shop: str, placed: str, spawn: Callable[..., Running]) -> None:
    """With --json each change is a line; the position of one leads to those behind it."""
    watching = spawn("watch", NS, placed, "--json", "--state", PROGRESSOR_DATABASE_URL=shop)
    first = json.loads(watching.wait_for("position"))
    assert (first["status"], first["events"]) == ("running", [])
    assert ask("call", NS, placed, "pay", '{"amount": 10}').status == 0
    paid = json.loads(watching.wait_for("position"))
    assert paid["state"]["paid"] == 10
    assert ask("call", NS, placed, "lose").status == 1
    assert json.loads(watching.wait_for("position"))["status"] == "error"
    assert ask("remove", NS, placed, "--yes").status == 0
    assert json.loads(watching.wait_for("position"))["status"] == "removed"
    assert watching.end() == 0
    again = ask("watch", NS, placed, "--json", "--after", first["position"])
    assert (again.status, again.json["status"]) == (0, "removed")


def test_for_people(ask: Ask, shop: str, placed: str, spawn: Callable[..., Running]) -> None:
    """A line for each change, with what failed below it; Ctrl-C ends it with status 130."""
    watching = spawn("watch", NS, placed, PROGRESSOR_DATABASE_URL=shop)
    watching.wait_for("running")
    assert ask("call", NS, placed, "lose").status == 1
    watching.wait_for("error")
    watching.signal(signal.SIGINT)
    assert watching.end() == 130
    assert "Traceback" not in watching.output


def test_what_is_not_there(ask: Ask, order: str) -> None:
    """The error is that of every other command."""
    done = ask("watch", NS, order)
    assert done.status == 1
    assert f"no process '{NS}/{order}'" in done.err
    assert ask("watch", NS, order, "--after", "now").status == 2
