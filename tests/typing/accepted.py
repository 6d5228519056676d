"""Typed requests that type checkers accept, each with the type of its answer. It is checked, never run."""

from decimal import Decimal
from typing import Any, assert_type

from progressor import Client, Namespace, Process, RetryPolicy, SyncClient
from progressor.http import HttpClient
from tests.typing.app import Account, Pay, Receipt, begin, cancel, close, greet, mend, pay, remind, total


async def by_client(client: Client) -> None:
    assert_type(await client.start(begin, "a", Pay(amount=1), metadata={"kind": 1}), None)
    assert_type(await client.call(pay, "a", Pay(amount=1), idempotency_key="k", timeout=3), Receipt)
    assert_type(await client.call(close, "a"), str)
    assert_type(await client.call(total, "a"), Decimal)
    assert_type(await client.call(greet, "a"), bytes | None)
    assert_type(await client.call(greet, "a", "good day"), bytes | None)
    assert_type(await client.call(cancel, "a"), int)
    assert_type(await client.call(remind, "a", "x"), float)
    assert_type(await client.notify(pay, "a", Pay(amount=1), context={"by": "us"}), None)
    assert_type(await client.notify(cancel, "a"), None)
    assert_type(await client.repair(mend, "a", 3), Receipt)
    assert_type(await client.call("bank", "a", "pay", {"amount": 1}), Any)
    assert_type(await client.start("bank", "a", {"amount": 1}), Any)


async def by_handle(client: Client, bank: Namespace[Account]) -> None:
    handle = client.process(bank, "a")
    assert_type((await handle.get()).state, Account)
    assert_type(await handle.start(begin, Pay(amount=1)), None)
    assert_type(await handle.call(pay, Pay(amount=1), timeout=3), Receipt)
    assert_type(await handle.call(close), str)
    assert_type(await handle.call(cancel), int)
    assert_type(await handle.notify(pay, Pay(amount=1)), None)
    assert_type(await handle.repair(mend, 3), Receipt)
    assert_type(await handle.call("pay", {"amount": 1}), Any)
    assert_type((await client.process("bank", "a").get()).state, Any)


async def over_http(client: HttpClient, bank: Namespace[Account]) -> None:
    assert_type(await client.call(pay, "a", Pay(amount=1)), Receipt)
    assert_type((await client.process(bank, "a").get()).state, Account)


def blocking(client: SyncClient, bank: Namespace[Account]) -> None:
    assert_type(client.start(begin, "a", Pay(amount=1)), None)
    assert_type(client.call(pay, "a", Pay(amount=1), timeout=3), Receipt)
    assert_type(client.call(close, "a"), str)
    assert_type(client.call(cancel, "a"), int)
    assert_type(client.notify(pay, "a", Pay(amount=1)), None)
    assert_type(client.repair(mend, "a", 3), Receipt)
    assert_type(client.process(bank, "a").get().state, Account)
    assert_type(client.process(bank, "a").call(total), Decimal)


async def in_a_unit_test(process: Process[Account]) -> None:
    assert_type(await pay(process, args=Pay(amount=1)), Receipt)


def policy() -> RetryPolicy:
    return RetryPolicy(max_attempts=3, non_retryable=(KeyError, "ValidationError"))
