"""Annotations that are texts (`from __future__ import annotations`) mean what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace
from progressor.model import Intent, Success

if TYPE_CHECKING:
    from decimal import Decimal

    from progressor.handlers.process import Process


class Pay(BaseModel):
    amount: int


async def test_models_of_the_module(run_step: Any) -> None:
    """A model at the top of the module is found; what only a type checker sees may stay unknown."""
    namespace = Namespace("billing")

    @namespace.call
    async def pay(process: Process[Any], args: Pay) -> int:
        return args.amount

    assert await run_step(namespace, "pay", b'{"amount":3}') == Success(Intent(response=b"3"))


async def test_models_of_the_function(run_step: Any) -> None:
    """A model defined next to the handler, within a function, is found too."""
    namespace = Namespace("billing")

    class Local(BaseModel):
        amount: int

    @dataclass
    class Answer:
        twice: int

    @namespace.call(name="pay")
    async def pay(process: Process[Any], args: Local | None) -> list[Answer]:
        return [] if args is None else [Answer(args.amount * 2)]

    outcome = await run_step(namespace, "pay", b'{"amount":3}')
    assert outcome == Success(Intent(response=b'[{"twice":6}]'))
    assert await run_step(namespace, "pay") == Success(Intent(response=b"[]"))


async def test_models_of_a_closure(run_step: Any) -> None:
    """A model of an outer function is found where the handler uses it."""

    class Outer(BaseModel):
        amount: int = 5

    def serve(namespace: Namespace) -> None:
        @namespace.call
        async def pay(process: Process[Any], args: Outer) -> int:
            return Outer(amount=args.amount).amount

    namespace = Namespace("billing")
    serve(namespace)
    assert await run_step(namespace, "pay") == Success(Intent(response=b"5"))


def _args(process: Process[Any], args: Decimal) -> None: ...


def _returns(process: Process[Any]) -> Decimal: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("function", [_args, _returns])
def test_unknown_names_are_explained(function: Callable[..., Any]) -> None:
    """A type that exists only for the type checker is refused, with what to do."""
    with pytest.raises(InvalidRequest, match=r"annotation 'Decimal' cannot be resolved.*outside"):
        Namespace("billing").call(function)
