"""The client of an engine, over the engine's own connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from progressor.client.client import Client
from progressor.handlers.namespace import Namespace
from progressor.node.node import Node
from progressor.worker.pools import Pools


class EngineClient(Client):
    """The client of an engine: its requests run in this process's own pools, where a slot is free."""

    def __init__(self, node: Node, namespaces: Iterable[Namespace], pools: Pools) -> None:
        self._attach(node, namespaces, None, pools=pools)

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None:
        """Do nothing: the connections are the engine's, which closes them."""
