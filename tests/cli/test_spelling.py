"""Errors of the library, as the user of a command reads them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from progressor.cli.commands import load
from progressor.cli.failures import report
from progressor.cli.spelling import spelled, spelling_of
from progressor.errors import HandlerFailed
from tests.cli.conftest import Ended

Ask = Callable[..., Ended]
NS = "shop.order"

WRONG = [
    (("call", NS, "o", "pay", "--idempotency-key", "progressor:x"), "--idempotency-key must not begin"),
    (("call", NS, "o", "pay", "--priority", "99"), "--priority must be from -10 to 10"),
    (("search", "--limit", "0"), "--limit must be"),
    (("trace", NS, "", "--limit", "1"), "PROCESS_ID must have 1 to 256 characters"),
    (("get", "no!", "o"), "NAMESPACE must match"),
    (("repair", "-n", NS, "--simple", "--rate", "0/s"), "--rate must be a number"),
    (("repair", "-n", NS, "--simple", "--detail-like", "\\"), "--detail-like must not end"),
    (("set-timer", NS, "o", "--after", "P1D", "--catch-up", "all"), "--catch-up"),
    (("set-timer", NS, "o", "--every", "P1D", "--remove"), "--remove takes no --every: it runs once"),
    (("put", NS, "o", "--timer-at", "9999-12-01T00:00:00Z"), "--timer-at must lie before 9999"),
    (("schedules", "pause", NS, "x" * 300), "NAMESPACE/NAME must have 1 to 256"),
]


@pytest.mark.parametrize(("command", "says"), WRONG, ids=lambda value: " ".join(value)[:40])
def test_what_was_typed_is_named(ask: Ask, command: tuple[str, ...], says: str) -> None:
    """By its option or its argument, for people and for machines."""
    refused = ask(*command)
    shown = " ".join(refused.err.replace("│", " ").split())
    assert says in shown
    assert "=" not in shown
    if refused.err.startswith("error: "):
        assert says in json.loads(ask(*command, "--json").err)["message"]


def test_a_reply_that_did_not_come(ask: Ask, order: str) -> None:
    """The key to ask again with is an option."""
    assert ask("start", NS, order, '{"item": "tea"}').status == 0
    paused = ask("pause", NS)
    late = ask("call", NS, order, "echo", "--timeout", "0.01", "--idempotency-key", "k")
    assert (paused.status, ask("resume", NS).status, late.status) == (0, 0, 75)
    assert "ask again with --idempotency-key 'k'" in late.err


def test_what_a_handler_says_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """Its texts are its own, whatever looks like a keyword in them."""
    error = HandlerFailed(NS, "o", error="OSError: timeout=5")
    report(error, machine=False, spelling={"timeout": "--timeout"})
    assert "OSError: timeout=5" in capsys.readouterr().err


TEXTS = [
    ("drift=, catch_up= and within= need every=", "--drift, --catch-up and --within need --every"),
    ("remove=True takes no every=: it runs once", "--remove takes no --every: it runs once"),
    ("SetTimer.at must lie before 9999", "--at must lie before 9999"),
    ("process 'a/at=' exists, other=1", "process 'a/at=' exists, other=1"),
    (
        "it has at most 5 bytes (max_value_bytes), (no_setting)",
        "it has at most 5 bytes (PROGRESSOR_MAX_VALUE_BYTES), (no_setting)",
    ),
    ("the text at is no time", "the text at is no time"),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_only_names_of_parameters_are_spelled_anew(text: str, expected: str) -> None:
    """Where a text cannot mean anything else: before `=`, at the beginning, and settings in brackets."""
    assert spelled(text, spelling_of(load("set-timer")), field="at") == expected


def test_each_fault_is_named_as_it_was_typed() -> None:
    """Not the first alone; and no other word."""
    said = "args.tenant: Field required; args.n: it is args"
    assert spelled(said, {"args": "ARGS"}, field="args.tenant") == (
        "ARGS.tenant: Field required; ARGS.n: it is args"
    )
