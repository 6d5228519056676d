"""A namespace with a function of each form, for the files that type checkers read."""

from decimal import Decimal

from pydantic import BaseModel

from progressor import Namespace, Process


class Account(BaseModel):
    balance: Decimal = Decimal(0)


class Pay(BaseModel):
    amount: int


class Receipt(BaseModel):
    balance: Decimal


bank = Namespace("bank", state=Account)


@bank.init
async def begin(process: Process[Account], args: Pay) -> None: ...


@bank.call
async def pay(process: Process[Account], args: Pay) -> Receipt:
    return Receipt(balance=process.state.balance)


@bank.call(name="closing")
async def close(process: Process[Account]) -> str:
    return process.process_id


@bank.call(fused=False)
def total(process: Process[Account]) -> Decimal:
    return process.state.balance


@bank.call
def greet(process: Process[Account], args: str = "hello") -> bytes | None:
    return args.encode()


@bank.call
async def cancel(process: Process[Account], *, http: object) -> int:
    return hash(http)


@bank.call
def remind(process: Process[Account], args: str, *, http: object) -> float:
    return 0.5


@bank.repair
async def mend(process: Process[Account], args: int) -> Receipt:
    return Receipt(balance=Decimal(args))
