"""The command that removes many processes: it is stopped, some of them stay, and its output is a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from progressor.cli import many, options
from progressor.client.results import Removal, RemovalPage
from tests.cli.conftest import NS, Ended

Ask = Callable[..., Ended]


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
