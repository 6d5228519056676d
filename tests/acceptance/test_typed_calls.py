"""Requests by the function that serves them: its namespace and name, and answers of its type."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from progressor import (
    Client,
    HandlerFailed,
    InvalidAnswer,
    InvalidRequest,
    Namespace,
    Process,
    Rejected,
    SyncClient,
)
from tests.acceptance import wallets
from tests.acceptance.conftest import MakeClient, MakeEngine, Options, of_a_client
from tests.acceptance.wallets import NS, Open, Pay, Receipt, Wallet


@pytest.fixture
async def asking(serve: MakeClient) -> Client:
    """A client of wallets, one of which is open."""
    client = await serve(wallets.wallets, wallets.letters)
    assert await client.start(wallets.begin, "ada", Open(owner="Ada")) == "opened for Ada"
    return client


async def test_answers_are_of_the_declared_types(asking: Client) -> None:
    """A model, a Decimal, a list of models, a time, None; and JSON where none is declared."""
    assert await asking.call(wallets.pay, "ada", Pay(amount=Decimal("2.50"))) == Receipt(
        amount=Decimal("2.50"), balance=Decimal("2.50")
    )
    total = await asking.call(wallets.total, "ada")
    assert (total, type(total)) == (Decimal("2.50"), Decimal)
    paid = await asking.call(wallets.pay_all, "ada", [Pay(amount=Decimal(1)), Pay(amount=Decimal(2))])
    assert [each.balance for each in paid] == [Decimal("3.50"), Decimal("5.50")]
    assert isinstance(await asking.call(wallets.close, "ada"), datetime)
    assert await asking.call(wallets.forget, "ada") is None
    assert await asking.call(wallets.echo, "ada", {"any": ["JSON", 1]}) == {"any": ["JSON", 1]}
    assert await asking.start(wallets.write, "letter") is None


async def test_arguments_with_a_default_may_be_left_out(asking: Client) -> None:
    """As by name."""
    assert await asking.call(wallets.greet, "ada") == "hello Ada"
    assert await asking.call(wallets.greet, "ada", "good day") == "good day Ada"
    assert await asking.call(NS, "ada", "greet") == "hello Ada"


async def test_notify_and_repair(asking: Client) -> None:
    """Both take a function."""
    await asking.notify(wallets.pay, "ada", Pay(amount=Decimal(3)))
    with pytest.raises(HandlerFailed):
        await asking.call(wallets.lose, "ada")
    assert await asking.repair(wallets.found, "ada", Pay(amount=Decimal(4))) == Receipt(
        amount=Decimal(4), balance=Decimal(7)
    )


async def test_a_handle_knows_the_state(asking: Client) -> None:
    """By the Namespace in place of its name, even in a client that was given none."""
    ada = asking.process(wallets.wallets, "ada")
    assert (await ada.call(wallets.pay, Pay(amount=Decimal(3)), idempotency_key="k")).balance == 3
    await ada.notify(wallets.pay, Pay(amount=Decimal(3)))
    assert await ada.call(wallets.total) == 6
    assert (await ada.get()).state == Wallet(owner="Ada", balance=Decimal(6))
    assert (await ada.get(range=None)).history == ()
    bob = asking.process(wallets.wallets, "bob")
    assert await bob.start(wallets.begin, Open(owner="Bob"), metadata={"kind": "new"}) == "opened for Bob"
    with pytest.raises(HandlerFailed):
        await bob.call(wallets.lose)
    assert (await bob.repair(wallets.found, Pay(amount=Decimal(1)))).balance == 1


async def test_a_repeated_request_has_the_same_answer(asking: Client) -> None:
    """By function or by name: it is the same request."""
    first = await asking.call(wallets.pay, "ada", Pay(amount=Decimal(3)), idempotency_key="k")
    assert await asking.call(wallets.pay, "ada", Pay(amount=Decimal(3)), idempotency_key="k") == first
    plain = await asking.call(NS, "ada", "pay", {"amount": "3"}, idempotency_key="k")
    assert plain == {"amount": "3", "balance": "3"}


async def test_refusals_are_those_of_a_call_by_name(asking: Client) -> None:
    """Of the handler, and of arguments that do not fit."""
    with pytest.raises(Rejected) as refused:
        await asking.call(wallets.refuse, "ada", Pay(amount=Decimal(3)))
    assert refused.value.details == {"day": "Sunday"}
    with pytest.raises(InvalidRequest) as missing:
        await asking.call(wallets.pay, "ada")  # type: ignore[misc] # without its arguments
    assert missing.value.field == "args.amount"


async def test_an_answer_of_another_type(asking: Client) -> None:
    """The step is done; by name its answer is to be had."""
    older = Namespace(NS)

    class Balance(Receipt):
        currency: str

    @older.call
    async def pay(process: Process, args: Pay) -> Balance:
        raise NotImplementedError

    with pytest.raises(InvalidAnswer, match=r"not with Balance: answer\.currency: Field required"):
        await asking.call(pay, "ada", Pay(amount=Decimal(3)), idempotency_key="k")
    plain = await asking.call(NS, "ada", "pay", {"amount": "3"}, idempotency_key="k")
    assert plain == {"amount": "3", "balance": "3"}


@pytest.mark.parametrize(
    ("request_of", "why"),
    [
        (lambda c: c.call(wallets.undecorated, "ada", Pay(amount=1)), "undecorated serves no call"),
        (lambda c: c.call(wallets.begin, "ada", Open(owner="x")), "begin serves no call of a namespace"),
        (lambda c: c.start(wallets.pay, "ada", Pay(amount=1)), "pay serves no init"),
        (lambda c: c.repair(wallets.pay, "ada", Pay(amount=1)), "pay serves no repair"),
        (lambda c: c.notify(wallets.remind, "ada"), "remind serves no call"),
        (lambda c: c.call(Wallet, "ada"), "Wallet serves no call"),
        (
            lambda c: c.call(wallets.twice, "ada"),
            r"several \(bank.both.again, bank.both.twice",
        ),
        (lambda c: c.call(wallets.pay, "ada", "pay", Pay(amount=1)), "behind the process_id"),
        (lambda c: c.process("bank.letter", "a").start(wallets.begin, Open(owner="x")), "bank.wallet, the"),
        (lambda c: c.process(wallets.letters, "a").call(wallets.pay, Pay(amount=1)), "bank.wallet, the"),
    ],
)
async def test_a_function_that_is_no_address(
    asking: Client, request_of: Callable[[Any], Any], why: str
) -> None:
    """InvalidRequest says what it serves, or what it lacks; nothing is written."""
    with pytest.raises(InvalidRequest, match=why):
        await request_of(asking)


async def test_a_function_without_attributes_is_called_by_name(serve: MakeClient) -> None:
    """A bound method serves like any function, and has nothing to note its namespace on."""

    class Desk:
        async def open(self, process: Process) -> str:
            return process.process_id

    desks, desk = Namespace("bank.desk"), Desk()
    desks.init(desk.open)
    client = await serve(desks)
    assert await client.start("bank.desk", "d1") == "d1"
    with pytest.raises(InvalidRequest, match="open serves no init"):
        await client.start(desk.open, "d2")


class Reversed:
    """Writes each value backwards."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


async def test_answers_behind_a_codec(engine: MakeEngine) -> None:
    """They are decoded before they are read."""
    coded = Namespace("bank.coded", state=Wallet, codec=Reversed())

    @coded.init
    async def begin(process: Process[Wallet], args: Open) -> Wallet:
        process.state = Wallet(owner=args.owner)
        return process.state

    client = (await engine(coded)).client
    ada = client.process(coded, "ada")
    assert await ada.start(begin, Open(owner="Ada")) == Wallet(owner="Ada")
    assert (await ada.get()).state == Wallet(owner="Ada")


async def test_sync_client(dsn: str, asking: Client, mode: Options) -> None:
    """The same, blocking."""

    def ask() -> None:
        with SyncClient(dsn, **of_a_client(mode)) as sync:
            assert sync.call(wallets.pay, "ada", Pay(amount=Decimal(3))).balance == 3
            ada = sync.process(wallets.wallets, "ada")
            assert ada.call(wallets.total) == 3
            assert ada.get().state == Wallet(owner="Ada", balance=Decimal(3))

    await asyncio.to_thread(ask)
