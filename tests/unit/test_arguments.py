"""What a call gets and gives: arguments and answers of typed functions."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.model import Failure, Intent, Rejection, Success


class Pay(BaseModel):
    amount: int


class Page(BaseModel):
    size: int = 10


@dataclass
class Point:
    x: int


class Move(TypedDict):
    x: int


class Renamed(BaseModel):
    plan: str = Field(alias="planName")
    price: int = Field(default=1, serialization_alias="pp", validation_alias="qq")


def serving(function: Any, **options: Any) -> Namespace:
    """A namespace with one call, `it`."""
    namespace = Namespace("billing", **options)
    namespace.call(name="it")(function)
    return namespace


# Arguments


async def with_pay(process: Any, args: Pay) -> Any:
    return args.amount


async def with_page(process: Any, args: Page) -> Any:
    return args.size


async def with_dict(process: Any, args: dict) -> Any:
    return args  # type: ignore[type-arg]


async def with_int(process: Any, args: int) -> Any:
    return args


async def with_point(process: Any, args: Point) -> Any:
    return [type(args).__name__, args.x]


async def with_typed_dict(process: Any, args: Move) -> Any:
    return args["x"]


async def with_optional(process: Any, args: Pay | None) -> Any:
    return args and args.amount


async def with_anything(process, args):
    return args  # type: ignore[no-untyped-def]


async def with_nothing(process: Any) -> Any:
    return "done"


async def with_default(process: Any, args: int = 5) -> Any:
    return args


async def with_alias(process: Any, args: Renamed) -> Any:
    return [args.plan, args.price]


@pytest.mark.parametrize(
    ("function", "args", "response"),
    [
        (with_pay, b'{"amount":3}', b"3"),
        (with_page, None, b"10"),
        (with_page, b"null", b"10"),
        (with_page, b'{"size":2}', b"2"),
        (with_dict, None, b"{}"),
        (with_int, b"3", b"3"),
        (with_point, b'{"x":3}', b'["Point",3]'),
        (with_typed_dict, b'{"x":3}', b"3"),
        (with_optional, None, b"null"),
        (with_optional, b'{"amount":3}', b"3"),
        (with_anything, None, b"null"),
        (with_anything, b'["a",1.5]', b'["a",1.5]'),
        (with_nothing, None, b'"done"'),
        (with_nothing, b"null", b'"done"'),
        (with_nothing, b"{}", b'"done"'),
        (with_default, None, b"5"),
        (with_default, b"6", b"6"),
        (with_alias, b'{"planName":"pro","qq":2}', b'["pro",2]'),
        (with_alias, b'{"plan":"pro","price":2}', b'["pro",2]'),
    ],
)
async def test_arguments_fit(run_step: Any, function: Any, args: Any, response: bytes) -> None:
    """Arguments arrive as the annotation says; left out, they are null or all defaults."""
    assert await run_step(serving(function), "it", args) == Success(Intent(response=response))


@pytest.mark.parametrize(
    ("function", "args", "text", "field"),
    [
        (with_pay, None, "args.amount: Field required", "args.amount"),
        (with_pay, b"{}", "args.amount: Field required", "args.amount"),
        (
            with_pay,
            b'{"amount":"x"}',
            "args.amount: Input should be a valid integer",
            "args.amount",
        ),
        (with_pay, b"{", "args: Invalid JSON", "args"),
        (with_pay, b"\xff", "args: Invalid JSON", "args"),
        (with_int, None, "args: Input should be a valid integer", "args"),
        (with_nothing, b"3", "with_nothing takes no arguments", "args"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(
    run_step: Any, function: Any, args: Any, text: str, field: str
) -> None:
    """Bad arguments refuse the request by field, and never break the process."""
    outcome = await run_step(serving(function), "it", args)
    assert isinstance(outcome, Rejection)
    assert outcome.reason.startswith(text)
    assert (outcome.details, outcome.invalid) == ({"field": field}, True)


class Transfer(BaseModel):
    amount: float
    note: str = ""
    most: float = float("inf")


async def with_transfer(process: Any, args: Transfer) -> Any:
    return args.amount


@pytest.mark.parametrize(
    "number",
    [
        *("NaN", "-Infinity", "1e400", f'"{"9" * 400}"', '"1e400"'),
        *('"NaN"', '"nan"', '"-inf"', '" +Infinity "', r'"\u004eaN"'),
    ],
)
async def test_a_number_that_is_none_is_refused(run_step: Any, number: str) -> None:
    """Also one that pydantic reads from a text: no state and no answer could hold it."""
    outcome = await run_step(serving(with_transfer), "it", f'{{"amount":{number}}}'.encode())
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "args.amount must not be NaN or Infinity"
    assert (outcome.details, outcome.invalid) == ({"field": "args.amount"}, True)


@pytest.mark.parametrize("function", [with_anything, with_dict])
async def test_a_number_that_is_none_is_refused_without_a_type(run_step: Any, function: Any) -> None:
    """The literal alone; a text stays a text."""
    outcome = await run_step(serving(function), "it", b'{"a":[1,NaN]}')
    assert isinstance(outcome, Rejection)
    assert outcome.details == {"field": "args.a.1"}
    plain = b'{"a":[1,"NaN"]}'
    assert await run_step(serving(function), "it", plain) == Success(Intent(response=plain))


async def test_a_default_may_be_infinite(run_step: Any) -> None:
    """Whatever the texts beside it say."""
    args = rb'{"amount":"1e3","note":"information for Nan\u0063y, 1e400"}'
    assert await run_step(serving(with_transfer), "it", args) == Success(Intent(response=b"1000.0"))


# Answers


async def test_the_return_annotation_serialises_the_answer(run_step: Any) -> None:
    """An answer is written as its annotation says, and by value where it says nothing."""

    async def declared(process: Process[None]) -> list[Renamed]:
        return [Renamed(planName="pro")]

    assert (await run_step(serving(declared), "it")).intent.response == b'[{"plan":"pro","price":1}]'


@pytest.mark.parametrize(
    ("value", "response"),
    [
        (None, b"null"),
        (Decimal("1.10"), b'"1.10"'),
        (Pay(amount=1), b'{"amount":1}'),
        (Point(1), b'{"x":1}'),
        (b'{"raw":1}', b'{"raw":1}'),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
    ],
)
@pytest.mark.parametrize("annotation", [Any, int, None])
async def test_an_answer_may_be_anything_json(
    run_step: Any, value: Any, response: bytes, annotation: Any
) -> None:
    """An answer that is not what its annotation says is written as it is: it breaks nothing."""

    async def it(process: Process[None]) -> Any:
        return value

    it.__annotations__["return"] = annotation
    assert await run_step(serving(it), "it") == Success(Intent(response=response))


@pytest.mark.parametrize("annotation", [Any, list[float]])
@pytest.mark.parametrize("value", [object(), float("nan")])
async def test_an_answer_without_json_fails(run_step: Any, annotation: Any, value: Any) -> None:
    """An answer that nobody could read is the handler's mistake."""

    async def it(process: Process[None]) -> Any:
        return [value]

    it.__annotations__["return"] = annotation
    outcome = await run_step(serving(it), "it")
    assert isinstance(outcome, Failure)
    assert outcome.error.startswith("InvalidRequest: the answer.0 ")
