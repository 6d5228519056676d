"""The resources of handlers: keyword-only parameters without a default, by their names."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from progressor import Engine, InvalidRequest, Namespace, Process
from progressor.handlers.function import Function

if TYPE_CHECKING:
    from collections import UserString


class Mailer: ...


async def pay(process: Process[int], args: int, *, mailer: Mailer, audit, later: str = "") -> int:  # type: ignore[no-untyped-def]  # on purpose
    return args


async def bill(process: Process[int], *, db: UserString) -> None: ...


def function_of(target: Callable[..., Any]) -> Function:
    return Function(target, name="it", takes_args=True, around={})


def test_resources_are_keyword_only_parameters_without_a_default() -> None:
    """Their names are read with the signature, and their types as far as they are known."""
    assert function_of(pay).resources == {"mailer": Mailer, "audit": Any}
    assert function_of(bill).resources == {"db": Any}


def test_keywords_with_a_default_are_the_functions_own() -> None:
    """A partial that gives a keyword leaves none to hand out."""
    assert function_of(functools.partial(bill, db="db")).resources == {}


@pytest.mark.parametrize("name", ["process", "args"])
def test_process_and_args_are_no_resources(name: str) -> None:
    """They are handed over by position, so a keyword of such a name is a mistake."""
    scope: dict[str, Any] = {}
    exec(f"async def odd(it, *, {name}): ...", scope)
    with pytest.raises(InvalidRequest, match=r"^it must take \(process\) or \(process, args\), not"):
        function_of(scope["odd"])


def test_a_function_without_its_resources_raises() -> None:
    """Only an engine hands them out."""
    with pytest.raises(InvalidRequest, match=r"^it takes resources \(db\), which an engine hands to it"):
        asyncio.run(_called(function_of(bill)))


async def _called(function: Function) -> Any:
    return await function.call(None)


def test_an_engine_names_all_that_is_missing() -> None:
    """Each parameter, with its function and namespace, before anything is connected."""
    billing, letters = Namespace("billing"), Namespace("letters")
    billing.call(pay)
    letters.timeout(bill)
    with pytest.raises(
        InvalidRequest, match=r"mailer, audit for pay of billing; db for bill of letters"
    ) as caught:
        Engine("postgresql://nowhere", [billing, letters])
    assert caught.value.field == "resources"
