"""The command audit: who did what by commands, when, from where and why."""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Ended

Ask = Callable[..., Ended]
NS = "shop.order"
USER = pwd.getpwuid(os.getuid()).pw_name


def audited(ask: Ask, *asked: str, **env: str) -> list[dict[str, Any]]:
    """The entries that the command prints, an object on each line."""
    found = ask("audit", *asked, "--json", **env)
    assert found.status == 0
    return [json.loads(line) for line in found.out.splitlines()]


def test_who_did_it_and_why(ask: Ask, order: str) -> None:
    """The user of the operating system and the machine, as the system knows them."""
    assert ask("put", NS, order, "--reason", "moved from the old shop").status == 0
    assert ask("remove", NS, order, "--yes").status == 0
    removed, put = audited(ask, NS, "--id", order)
    assert [put["verb"], removed["verb"]] == ["put", "remove"]
    for entry in (put, removed):
        assert (entry["actor"], entry["way"], entry["origin"]) == (USER, "cli", socket.gethostname())
        assert (entry["namespace"], entry["process_id"]) == (NS, order)
    assert (put["reason"], removed["reason"]) == ("moved from the old shop", None)
    shown = ask("audit", NS, "--id", order, "--verb", "put").out
    assert "moved from the old shop" in shown
    assert f"cli {socket.gethostname()}" in shown


def test_a_timer_that_is_changed_by_hand(ask: Ask, order: str) -> None:
    """Each change leaves an entry, which the changes of programs do not."""
    assert ask("put", NS, order).status == 0
    for command in ("set-timer", "unset-timer"):
        more = ("--after", "P1D") if command == "set-timer" else ()
        assert ask(command, NS, order, *more, "--reason", "ticket 17").status == 0
    unset, made, _ = audited(ask, NS, "--id", order)
    assert [made["verb"], unset["verb"]] == ["set_timer", "unset_timer"]
    assert {made["reason"], unset["reason"]} == {"ticket 17"}


def test_another_name(ask: Ask, order: str) -> None:
    """The setting names who uses a shared account."""
    assert ask("put", NS, order, PROGRESSOR_ACTOR="nightly import").status == 0
    (entry,) = audited(ask, NS, "--id", order)
    assert entry["actor"] == "nightly import"
    assert ask("put", NS, order, PROGRESSOR_ACTOR="two\nlines").status == 2


def test_pages(ask: Ask, order: str) -> None:
    """The note on stderr has the cursor of the next one."""
    assert ask("put", NS, order).status == 0
    assert ask("remove", NS, order, "--yes").status == 0
    first = ask("audit", NS, "--id", order, "--limit", "1", "--json")
    cursor = first.err.split("--cursor ")[1].strip()
    (second,) = audited(ask, NS, "--id", order, "--limit", "1", "--cursor", cursor)
    assert (json.loads(first.out)["verb"], second["verb"]) == ("remove", "put")


def test_nothing_is_found(ask: Ask) -> None:
    """A namespace that nobody knows may be one that is gone."""
    found = ask("audit", "nobody.knows")
    assert (found.status, found.out) == (0, "")
    assert "no operator" in found.err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--verb", "rename"), "verb must be one of"),
        (("--since", "yesterday"), "--since"),
        (("--cursor", "x"), "cursor is not one"),
    ],
)
def test_bad_input(ask: Ask, asked: tuple[str, ...], told: str) -> None:
    """It is refused by its name."""
    refused = ask("audit", *asked)
    assert refused.status == 2
    assert told in refused.err


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 257])
def test_a_reason_is_one_line(ask: Ask, order: str, reason: str) -> None:
    """Another one is refused, before anything is done."""
    refused = ask("put", NS, order, "--reason", reason)
    assert refused.status == 2
    assert "reason must" in refused.err
    assert audited(ask, NS, "--id", order) == []


def test_a_token_has_no_secret_in_it(progressor: Ask, dsn: str) -> None:
    """Its id and its name."""
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    made = progressor("token", "create", "web", "--scope", "bulk", "-n", "*", "--reason", "new shop", **env)
    token_id, secret = made.out.strip().removeprefix("prg_").split("_")
    assert progressor("token", "revoke", token_id, "--yes", **env).status == 0
    entries = audited(progressor, **env)
    assert [entry["verb"] for entry in entries] == ["revoke_token", "create_token"]
    assert {entry["subject"] for entry in entries} == {f"token {token_id}"}
    assert entries[1]["reason"] == "new shop"
    assert secret not in str(entries)
