"""HttpClient has the methods of Client: names, parameters and defaults.

Rule: what is otherwise stands here, with its reason.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from progressor import Client, ProcessHandle
from progressor.http import HttpClient

# The parameters that HttpClient has not.
LEFT_OUT = {
    method: {"namespaces": "a token has patterns of its own, and the server shows what they fit"}
    for method in ("search", "bulks", "audit")
}

# The methods that it has not.
MISSING = dict.fromkeys(
    ("subscription", "forward", "project"), "readers that are kept connect to PostgreSQL"
) | dict.fromkeys(
    (
        *("subscriptions", "parked", "retry_parked", "skip_parked", "park_failing"),
        *("move_subscription", "remove_subscription"),
    ),
    "operators of readers connect to PostgreSQL",
)


def methods(of: type) -> set[str]:
    return {name for name, value in inspect.getmembers(of, callable) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()
    ]


def test_it_has_the_clients_methods_and_no_other() -> None:
    """What one of them can, the other one can."""
    assert methods(HttpClient) == methods(Client) - MISSING.keys()


@pytest.mark.parametrize("name", sorted(methods(Client) - MISSING.keys()))
def test_a_method_has_its_parameters(name: str) -> None:
    """Under the same names, in the same order, with the same defaults."""
    wanted, has = (parameters(getattr(each, name)) for each in (Client, HttpClient))
    left_out = LEFT_OUT.get(name, {})
    assert has == [each for each in wanted if each[0] not in left_out]
    assert left_out.keys() <= {each[0] for each in wanted}
    is_async = [inspect.iscoroutinefunction(getattr(each, name)) for each in (Client, HttpClient)]
    assert is_async[0] == is_async[1]


def test_what_is_left_out_is_left_out_of_a_method() -> None:
    """No exception outlives what it was for."""
    assert LEFT_OUT.keys() | MISSING.keys() <= methods(Client)


def test_a_handle_serves_both() -> None:
    """Whatever it can is a method of either."""
    assert methods(ProcessHandle) <= methods(HttpClient)
