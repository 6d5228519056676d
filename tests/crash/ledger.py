"""The work of the crash tests: accounts that are opened, take deposits, and tick once by a timer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg

from progressor import Client, HandlerFailed, Namespace, Process, ReplyTimeout, StorageUnavailable

ACCOUNTS = ("a", "b", "c")
SPOILT = tuple(f"s{number}" for number in range(12))
DEPOSITS = (1, 2, 3, 4)
NAMESPACE = "crash.account"
BOOK = "book"

# Short, so that a test of a death takes a second; long enough for a busy machine's heartbeat.
OPTIONS: dict[str, Any] = {
    "lease_age": timedelta(seconds=1.5),
    "heartbeat_interval": timedelta(seconds=0.2),
    "zombie_interval": timedelta(seconds=0.25),
    "scan_interval": timedelta(seconds=0.3),
}
CLIENT_OPTIONS: dict[str, Any] = {"lease_age": OPTIONS["lease_age"]}


def account(
    *, deposits_wait: bool = False, writes: bool = False, sends: bool = False, spoils: bool = True
) -> Namespace:
    """The namespace; `writes`: a deposit writes a row of the user's table in its transaction.

    `sends`: it also sends a message to the account BOOK. Without `spoils` the bug is mended.
    """
    ns = Namespace(NAMESPACE, on_zombie="retry", concurrency=10)

    @ns.init
    async def open_account(process: Process[Any], args: dict[str, int]) -> str:
        process.state = {"balance": 0, "ticks": 0}
        process.emit("opened")
        process.set_timer(after=timedelta(milliseconds=args["tick_ms"]))
        return "opened"

    async def deposit(process: Process[Any], args: dict[str, int]) -> int:
        if deposits_wait:
            await asyncio.sleep(0)
        process.state["balance"] += args["amount"]
        process.emit("deposited", amount=args["amount"])
        return int(process.state["balance"])

    async def deposit_with_row(
        process: Process[Any], args: dict[str, int], *, connection: psycopg.AsyncConnection
    ) -> int:
        row = process.process_id, args["amount"]
        await connection.execute("INSERT INTO deposits (account, amount) VALUES (%s, %s)", row)
        return await deposit(process, args)

    async def deposit_with_message(process: Process[Any], args: dict[str, int]) -> int:
        process.send(NAMESPACE, BOOK, "note", [process.process_id, args["amount"]])
        return await deposit(process, args)

    ns.call(name="deposit")(deposit_with_row if writes else deposit_with_message if sends else deposit)
    ns.call(note)

    @ns.call
    async def spoil(process: Process[Any]) -> None:
        if spoils:
            raise ConnectionError("the bank does not answer")
        process.emit("spent")

    @ns.repair
    async def mend(process: Process[Any]) -> None:
        process.emit("mended")

    @ns.timeout
    async def tick(process: Process[Any]) -> None:
        process.state["ticks"] += 1
        process.emit("ticked", nominal=process.task.nominal)

    return ns


async def note(process: Process[Any], args: list[Any]) -> None:
    """Note a deposit in the book."""
    process.emit("noted", deposit=args)


async def persistently(ask: Any) -> Any:
    """What a careful caller does: ask again under the same key until there is an answer."""
    while True:
        try:
            return await ask()
        except (ReplyTimeout, StorageUnavailable):
            await asyncio.sleep(0)


async def use(client: Client, account_id: str) -> list[int]:
    """Open an account and make the deposits, each under its key; the balances answered."""
    of = client.process(NAMESPACE, account_id)
    await persistently(lambda: of.start({"tick_ms": 5}, idempotency_key=f"open-{account_id}", timeout=5))
    return [await deposit(client, account_id, amount) for amount in DEPOSITS]


async def deposit(client: Client, account_id: str, amount: int) -> int:
    """Make a deposit under its key; the balance answered."""
    of, key = client.process(NAMESPACE, account_id), f"{account_id}-{amount}"
    ask = partial(of.call, "deposit", {"amount": amount}, idempotency_key=key, timeout=5)
    return int(await persistently(ask))


async def spoil(client: Client, *names: str) -> None:
    """Break these accounts; those that are not there are opened before."""
    for name in names:
        of = client.process(NAMESPACE, name)
        await of.start({"tick_ms": 3_600_000}, idempotency_key=f"open-{name}")
        with suppress(HandlerFailed):
            await of.call("spoil")


async def use_all(client: Client) -> list[list[int]]:
    return await asyncio.gather(*(use(client, account_id) for account_id in ACCOUNTS))


async def redo_all(client: Client) -> list[int]:
    """Run the first deposit of each account again; the balances answered."""
    return await asyncio.gather(*(redo(client, account_id) for account_id in ACCOUNTS))


async def redo(client: Client, account_id: str) -> int:
    of = client.process(NAMESPACE, account_id)
    first = next(entry.task_id for entry in await of.trace() if entry.name == "deposit")
    return int(await persistently(partial(of.redo, first, timeout=5)))
