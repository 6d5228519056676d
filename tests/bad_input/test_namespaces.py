"""A Namespace where its name is wanted: each method says what to give instead, and asks nobody."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from progressor import Client, InvalidRequest, Namespace
from progressor.http import HttpClient
from tests.clusters import free_port

# A value for each parameter that methods need beside the namespace.
NEEDED: dict[str, Any] = {
    "process_id": "one",
    "name": "pay",
    "task_id": 1,
    "group": "eu",
    "limit": 1,
    "retention": None,
}
# A choice that a method needs, though each part of it has a default.
CHOSEN = {"set_timer": {"after": timedelta(days=1)}}
# It takes a Namespace.
TAKES_BOTH = "process"


def _methods() -> list[str]:
    found = inspect.getmembers(Client, inspect.isfunction)
    wanted = [name for name, each in found if "namespace" in inspect.signature(each).parameters]
    return [name for name in wanted if not name.startswith("_") and name != TAKES_BOTH]


async def _ask(client: Any, name: str) -> None:
    method = getattr(client, name)
    parameters = inspect.signature(method).parameters.values()
    needed = [
        each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    given = {each: NEEDED[each] for each in needed if each != "namespace"}
    asked = method(namespace=Namespace("shop.cart"), **given, **CHOSEN.get(name, {}))
    if isinstance(asked, Awaitable):
        await asked
    else:
        await anext(asked)


@pytest.mark.parametrize("name", _methods())
async def test_a_namespace_object_is_refused_by_name(name: str) -> None:
    """Of a client and one over HTTP, before anything is connected: there is no server."""
    at = f"127.0.0.1:{free_port()}"
    for client in (Client(f"postgresql://{at}/nowhere"), HttpClient(f"http://{at}")):
        with pytest.raises(InvalidRequest, match=r"give its name, 'shop\.cart'") as refused:
            await _ask(client, name)
        assert refused.value.field == "namespace"
        await client.close()
