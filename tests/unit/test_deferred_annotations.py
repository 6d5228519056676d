"""Annotations that Python evaluates when somebody asks, from Python 3.14 on, mean what they say.

This module does without `from __future__ import annotations`: older releases refuse it by themselves.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if sys.version_info < (3, 14):
    pytest.skip("annotations are evaluated at once before Python 3.14", allow_module_level=True)

from progressor import Cron, Namespace, Projection
from progressor.errors import InvalidRequest
from progressor.testing import step

if TYPE_CHECKING:
    from collections import UserString
    from decimal import Decimal

    from psycopg import AsyncConnection

    from progressor import FeedEvent, Process


async def test_names_that_only_a_type_checker_sees() -> None:
    """Process and resources may have types that are not known; arguments and answer still have theirs."""
    namespace = Namespace("billing")

    @namespace.call
    async def pay(process: Process[Any], args: int, *, db: UserString) -> str:
        return f"{db} {args + 1}"

    done = await step(pay, 3, resources={"db": "ledger"})
    assert done.answer == "ledger 4"


def _args(process: Process[Any], args: Decimal) -> None: ...


def _optional(process: Process[Any], args: Decimal | None) -> None: ...


def _returns(process: Process[Any]) -> Decimal: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("function", [_args, _optional, _returns])
def test_unknown_names_are_explained(function: Callable[..., Any]) -> None:
    """A type of arguments or answer that exists only for the type checker is refused, with what to do."""
    with pytest.raises(InvalidRequest, match=r"annotation .*Decimal.* cannot be resolved.*outside"):
        Namespace("billing").call(function)


def test_a_schedule_and_a_projection() -> None:
    """The function of a schedule may have types that are not known; a projection knows its connection."""
    namespace = Namespace("billing")

    @namespace.init
    async def begin(process: Process[Any], args: str) -> None: ...

    def of_the_day(nominal: UserString) -> str:
        return str(nominal)

    namespace.schedule("nightly", Cron("0 3 * * *"), start="fixed", args=of_the_day)
    totals = Projection("totals")

    async def add(event: FeedEvent, connection: AsyncConnection) -> None: ...

    with pytest.raises(InvalidRequest, match="its annotations cannot be read"):
        totals.on("billing", "paid")(add)
