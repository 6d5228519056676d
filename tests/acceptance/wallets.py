"""Wallets: a namespace of functions in a module, as an application has it, for calls by function."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field

from progressor import Namespace, Process, Reject

NS = "bank.wallet"


class Wallet(BaseModel):
    owner: str
    balance: Decimal = Decimal(0)
    closed_at: datetime | None = None


class Open(BaseModel):
    owner: str


class Pay(BaseModel):
    amount: Decimal = Field(gt=0)


class Receipt(BaseModel):
    amount: Decimal
    balance: Decimal


wallets = Namespace(NS, state=Wallet)


@wallets.init
async def begin(process: Process[Wallet], args: Open) -> str:
    process.state = Wallet(owner=args.owner)
    return f"opened for {args.owner}"


@wallets.call
async def pay(process: Process[Wallet], args: Pay) -> Receipt:
    process.state.balance += args.amount
    return Receipt(amount=args.amount, balance=process.state.balance)


@wallets.call(name="sum-of")
def total(process: Process[Wallet]) -> Decimal:
    """A plain function, which is served under another name."""
    return process.state.balance


@wallets.call
async def pay_all(process: Process[Wallet], args: list[Pay]) -> list[Receipt]:
    return [await pay(process, each) for each in args]


@wallets.call
async def greet(process: Process[Wallet], args: str = "hello") -> str:
    return f"{args} {process.state.owner}"


@wallets.call
async def echo(process: Process[Wallet], args: Any) -> Any:
    return args


@wallets.call
async def close(process: Process[Wallet]) -> datetime:
    process.state.closed_at = process.now
    return process.now


@wallets.call
async def forget(process: Process[Wallet]) -> Receipt | None:
    return None


@wallets.call
async def lose(process: Process[Wallet]) -> None:
    raise RuntimeError("lost")


@wallets.call
async def refuse(process: Process[Wallet], args: Pay) -> Receipt:
    raise Reject("not today", day="Sunday")


@wallets.repair
async def found(process: Process[Wallet], args: Pay) -> Receipt:
    process.state.balance += args.amount
    return Receipt(amount=args.amount, balance=process.state.balance)


letters = Namespace("bank.letter")


@letters.init
async def write(process: Process) -> None:
    process.state = {"written": True}


@letters.timeout
async def remind(process: Process) -> None:
    process.remove()


def undecorated(process: Process[Wallet], args: Pay) -> Receipt:
    raise NotImplementedError


both = Namespace("bank.both")


@both.call
@both.call(name="again")
async def twice(process: Process) -> None:
    """One function under two names."""
