"""The command that removes many processes: it is stopped, some of them stay, and its output is a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from progressor.cli import many, options
from progressor.client.results import Removal, RemovalPage
from tests.cli.conftest import NS, Ended

Ask = Callable[..., Ended]


def test_one_has_its_receipt_too(ask: Ask, order: str) -> None:
    """On a line, as those of many, with the same members: `archive remove --receipt` takes each."""
    assert ask("put", NS, order, '{"item": "tea"}', "--events", '[{"name": "a"}]').status == 0
    other = ("--metadata", f"customer={order}")
    assert ask("put", NS, f"{order}-other", '{"item": "tea"}', *other).status == 0
    one, many = (ask("remove", NS, *which, "--yes", "--json") for which in ((order,), other))
    assert (one.status, len(one.out.splitlines())) == (0, 1)
    assert (one.json["namespace"], one.json["process_id"], one.json["error"]) == (NS, order, None)
    assert (one.json["events"], one.json.keys()) == (1, many.json.keys())
    assert one.json["created_at"] < one.json["removed_at"]
    assert ask("get", NS, order).status == 1
    again = ask("remove", NS, order, "--yes", "--json")
    assert (again.status, again.out, json.loads(again.err)["error"]) == (1, "", "ProcessNotFound")


def test_the_archive_takes_the_receipt(ask: Ask, order: str, tmp_path: Path) -> None:
    """Of one process."""
    assert ask("put", NS, order, '{"item": "tea"}').status == 0
    receipt = tmp_path / "receipt.ndjson"
    receipt.write_text(ask("remove", NS, order, "--yes", "--json").out)
    given = ("--archive", str(tmp_path), "--receipt", str(receipt), "--yes", "--json")
    assert ask("archive", "remove", NS, *given).json["process_id"] == order


class _Remover:
    """A client whose page takes as long as the test wants."""

    def __init__(self) -> None:
        self.asked = 0
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def remove_processes(self, namespace: str, **_: Any) -> RemovalPage:
        self.asked += 1
        self.began.set()
        await self.may_end.wait()
        now = datetime(2026, 2, 28, tzinfo=UTC)
        return RemovalPage([Removal(namespace, "p1", now, 1, now)], "more")


async def test_ctrl_c_waits_for_the_receipts_of_a_page() -> None:
    """What is removed has its receipt; the next page is not begun."""
    client, receipts = _Remover(), list[Removal]()
    wanted = many._Wanted(NS, None, {"customer": 17}, None)

    async def command() -> None:
        async for page in wanted.removals(client, dry_run=False):  # type: ignore[arg-type] # it has the method
            receipts.extend(page)

    running = asyncio.create_task(command())
    await client.began.wait()
    running.cancel()
    client.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ([each.process_id for each in receipts], client.asked) == (["p1"], 1)


def test_what_stays_is_told_to_people_and_scripts(
    ask: Ask, shop: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr and in the status; stdout has receipts alone, also if the command asks first."""
    mine = ("--metadata", f"customer={order}")
    for n in range(2):
        assert ask("put", NS, f"{order}-{n}", '{"item": "tea"}', *mine).status == 0
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (process_no bigint REFERENCES progressor.processes)")
        try:
            connection.execute(
                "INSERT INTO notes SELECT process_no FROM progressor.processes WHERE process_id = %s",
                [f"{order}-0"],
            )
            monkeypatch.setattr(options, "_is_terminal", lambda: True)
            done = ask("remove", NS, *mine, "--json", stdin="y\n")
            # The runner shows the answer on stdout.
            stays, gone = map(json.loads, done.out.removeprefix(" y\n").splitlines())
            assert (stays["removed_at"], gone["error"]) == (None, None)
            assert "notes_process_no_fkey" in stays["error"]
            assert (done.status, "2 processes match" in done.err) == (1, True)
            assert "not removed: 1 process; the error of each is in its receipt" in done.err
            again = ask("remove", NS, *mine, "--yes")
            assert (again.status, f"{order}-0: " in again.err) == (1, True)
        finally:
            connection.execute("DROP TABLE notes")
    assert ask("remove", NS, *mine, "--yes").status == 0
