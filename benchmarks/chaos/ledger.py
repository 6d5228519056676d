"""The ledger: accounts that take transfers, notes and interest, and receipts that remove themselves.

Rule: every effect leaves one event that names the request's key, a number of this execution (`nonce`) and
the balance after it; the answer says the same. So a client's record and the history can be compared.
Deposits and interest stand in the bank's own table too, written in the transactions of their steps.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection, Connection

from progressor import Namespace, Process, Reject, RetryPolicy

ACCOUNTS = "chaos.account"
RECEIPTS = "chaos.receipt"
PAPERS = "chaos.paper"
STEADY = "chaos.steady"

OPENING_BALANCE = 100
SHARED_ACCOUNTS = tuple(f"shared-{number}" for number in range(8))
# Whose mailbox is long when commits are lost.
BRANCH = "branch"
# The events that have a row in the bank's own table.
ENTERED = ("deposited", "ticked")
TICK = timedelta(seconds=0.8)
RECEIPT_LIFE = timedelta(seconds=1.5)
# The group of all receipts, and how many of them are worked on at once.
TILL, TILL_LIMIT = "till", 2
# How many cooks of each work at once; see limits.py.
TENANTS = {"north": 5, "south": 1}
# Long enough that whoever asks meanwhile waits.
PONDERS = 4.0
# Long enough that a kill finds steps under way.
_LONGEST_STEP = 0.03

LEASE_SECONDS = 2.0
# A short lease, so that minutes hold hundreds of deaths; everything else follows from it.
CLIENT_OPTIONS: dict[str, Any] = {
    "lease_age": timedelta(seconds=LEASE_SECONDS),
    "patience": timedelta(seconds=4),
    "reply_poll_interval": timedelta(seconds=0.5),
}
ENGINE_OPTIONS: dict[str, Any] = {
    **CLIENT_OPTIONS,
    "heartbeat_interval": timedelta(seconds=0.4),
    "zombie_interval": timedelta(seconds=0.5),
    "zombie_grace": timedelta(seconds=3),
    "scan_interval": timedelta(seconds=0.6),
    "stop_grace": timedelta(seconds=10),
}
# Of a worker that nobody kills, freezes or cuts off, and that busy machines must not starve either.
STEADY_LEASE_SECONDS = 4.0
STEADY_PROCESSES = tuple(f"steady-{number}" for number in range(5))
STEADY_OPTIONS: dict[str, Any] = {**ENGINE_OPTIONS, "lease_age": timedelta(seconds=STEADY_LEASE_SECONDS)}
# Longer than a stall: most of what it does, it does in the midst of a step.
_STEADY_STEP = 2 * STEADY_LEASE_SECONDS
# Longer than a step and a stall; short enough that a run's end sees who is stuck.
_STEADY_TIMEOUT = timedelta(seconds=40)
# Nobody is there to repair anything: what a fault interrupted is tried again, however often.
POLICY = RetryPolicy(initial_interval=timedelta(seconds=0.2), backoff_coefficient=1.0, max_attempts=None)
STEP_TIMEOUT = timedelta(seconds=5)
_ENTER = "INSERT INTO bank.entries (account, nonce, amount) VALUES (%s, %s, %s)"


class BadMomentError(Exception):
    """The first attempt of some ticks fails, so that retries are under fire too."""


def namespaces() -> list[Namespace]:
    """What the workers serve, beside meters and cooks."""
    return [_accounts(), _receipts(), _papers()]


def _accounts() -> Namespace:
    ns = Namespace(
        ACCOUNTS,
        feed=True,
        on_zombie="retry",
        zombie_attempts=1_000_000,
        retry_policy=POLICY,
        step_timeout=STEP_TIMEOUT,
        concurrency=20,
    )

    @ns.init
    async def open_account(process: Process[Any], args: dict[str, int]) -> dict[str, Any]:
        process.state = {"balance": 0, "ticks": 0, "notes": 0}
        process.set_timer(after=TICK)
        return _moved(process, "opened", args["balance"])

    @ns.call
    async def withdraw(process: Process[Any], args: dict[str, int]) -> dict[str, Any]:
        await _work()
        if process.state["balance"] < args["amount"]:
            raise Reject("insufficient funds", balance=process.state["balance"])
        return _moved(process, "withdrawn", -args["amount"])

    @ns.call
    async def deposit(
        process: Process[Any], args: dict[str, int], *, connection: AsyncConnection
    ) -> dict[str, Any]:
        record = _moved(process, "deposited", args["amount"])
        await connection.execute(_ENTER, _entry(process, record))
        await _work()
        return record

    @ns.call
    async def note(process: Process[Any]) -> dict[str, Any]:
        process.state["notes"] += 1
        return _record(process, "noted", amount=0)

    @ns.call
    async def ponder(process: Process[Any]) -> dict[str, Any]:
        await asyncio.sleep(PONDERS)
        process.state["notes"] += 1
        return _record(process, "noted", amount=0)

    @ns.call
    async def close(process: Process[Any]) -> dict[str, Any]:
        process.unset_timer()
        return _record(process, "closed", amount=0)

    @ns.timeout
    def tick(process: Process[Any], *, connection: Connection) -> None:
        fails = process.state["ticks"] % 5 == 4 and process.task.attempts_count == 0
        process.state["ticks"] += 1
        connection.execute(_ENTER, _entry(process, _moved(process, "ticked", 1)))
        time.sleep(_work_seconds())
        if fails:
            raise BadMomentError
        process.set_timer(after=TICK)

    return ns


def _receipts() -> Namespace:
    ns = Namespace(
        RECEIPTS,
        group=lambda _: TILL,
        group_limit=TILL_LIMIT,
        on_zombie="retry",
        zombie_attempts=1_000_000,
        retry_policy=POLICY,
        step_timeout=STEP_TIMEOUT,
        concurrency=10,
    )

    @ns.init
    async def issue(process: Process[Any], args: dict[str, Any]) -> dict[str, Any]:
        process.state = args
        process.emit("issued")
        process.set_timer(after=RECEIPT_LIFE, remove=True)
        return args

    return ns


def _papers() -> Namespace:
    ns = Namespace(
        PAPERS, on_zombie="retry", zombie_attempts=1_000_000, step_timeout=STEP_TIMEOUT, concurrency=10
    )

    @ns.init
    async def draw_up(process: Process[Any]) -> dict[str, Any]:
        return {"key": process.task.idempotency_key}

    return ns


def steady() -> Namespace:
    """What breaks if a step is taken from a worker that lives."""
    ns = Namespace(STEADY, on_zombie="error", step_timeout=_STEADY_TIMEOUT)

    @ns.init
    async def begin(process: Process[Any]) -> None:
        process.state = 0
        process.set_timer(after=timedelta(0))

    @ns.timeout
    async def go_on(process: Process[Any]) -> None:
        await asyncio.sleep(random.uniform(0.5, 1) * _STEADY_STEP)
        process.state += 1
        process.set_timer(after=timedelta(0))

    @ns.call
    async def close(process: Process[Any]) -> int:
        process.unset_timer()
        return int(process.state)

    return ns


def _moved(process: Process[Any], event: str, amount: int) -> dict[str, Any]:
    process.state["balance"] += amount
    return _record(process, event, amount=amount)


def _record(process: Process[Any], event: str, *, amount: int) -> dict[str, Any]:
    record = {
        "key": process.task.idempotency_key,
        "nonce": secrets.token_hex(8),
        "amount": amount,
        "balance": process.state["balance"],
        "now": process.now.isoformat(),
    }
    process.emit(event, **record)
    return record


def _entry(process: Process[Any], record: dict[str, Any]) -> tuple[str, str, int]:
    return process.process_id, record["nonce"], record["amount"]


async def _work() -> None:
    if seconds := _work_seconds():
        await asyncio.sleep(seconds)


def _work_seconds() -> float:
    # A third waits for nothing: behind its lock it comes to its end, the others go on.
    return random.uniform(0, _LONGEST_STEP) if random.randrange(3) else 0
