"""Typed requests that type checkers refuse: exactly the lines with `refused`. It is checked, never run."""

from progressor import Client, Namespace, Process, SyncClient
from progressor.http import HttpClient
from tests.typing.app import Account, Pay, Receipt, begin, cancel, close, mend, pay, remind, total


async def arguments(client: Client, http: HttpClient) -> None:
    await client.start(begin, "a", "pay")  # refused
    await client.start(begin, "a")  # refused
    await client.call(pay, "a", 3)  # refused
    await client.call(pay, "a")  # refused
    await client.call(close, "a", Pay(amount=1))  # refused
    await client.call(cancel, "a", 3)  # refused
    await client.call(remind, "a", 3)  # refused
    await client.call(remind, "a")  # refused
    await client.call(total, "a", 3)  # refused
    await client.notify(pay, "a", 3)  # refused
    await client.notify(pay, "a")  # refused
    await client.repair(mend, "a", "3")  # refused
    await http.call(pay, "a", 3)  # refused


async def options(client: Client) -> None:
    await client.call(pay, "a", Pay(amount=1), timout=3)  # refused
    await client.call(pay, "a", Pay(amount=1), metadata={})  # refused
    await client.call(pay, 3, Pay(amount=1))  # refused


async def answers(client: Client, http: HttpClient, sync: SyncClient) -> None:
    text: str = await client.call(pay, "a", Pay(amount=1))  # refused
    number: int = await client.call(close, "a")  # refused
    receipt: Receipt = await http.call(close, "a")  # refused
    again: Receipt = sync.call(total, "a")  # refused
    print(text, number, receipt, again)


async def handles(client: Client, sync: SyncClient, bank: Namespace[Account]) -> None:
    await client.process(bank, "a").call(pay, 3)  # refused
    await client.process(bank, "a").call(pay)  # refused
    await client.process(bank, "a").start(begin, 3)  # refused
    print((await client.process(bank, "a").get()).state.balence)  # refused
    sync.process(bank, "a").call(pay, 3)  # refused
    print(sync.process(bank, "a").get().state.balence)  # refused
    sync.call(pay, "a", 3)  # refused


bank = Namespace("bank", state=Account)


@bank.call  # refused
async def of_another_state(process: Process[int]) -> None: ...
