"""The sink that calls a function of the same database, in the transaction of the checkpoint.

Rule: each event counts once: what the function writes and how far it has come are committed together.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from progressor.app.projection import Projection
from progressor.client.results import FeedEvent
from progressor.sinks.cloudevents import structured
from progressor.sinks.config import ForwardedTo


class FunctionOptions(BaseModel):
    """The options of a sink of the type `function`: its name, which takes one `jsonb`, an envelope."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["function"]
    function: str = Field(pattern=r"^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$")

    def projection(self, name: str, forwarded: ForwardedTo) -> Projection:
        """Return the projection that calls it."""
        made = Projection(name, start=forwarded.start, on_failure=forwarded.on_failure)
        quoted = ".".join(f'"{part}"' for part in self.function.split("."))
        statement = f"SELECT {quoted}(%s::jsonb)"

        async def call(event: FeedEvent, connection: Any) -> None:
            await connection.execute(statement, [structured(event).decode()])

        for namespace, kind in product(forwarded.namespaces or ["*"], forwarded.kinds):
            names: list[str | None] = [None]
            if kind == "event" and forwarded.events is not None:
                names = [*forwarded.events]
            for event_name in names:
                made.on(namespace, event_name, kind=kind)(call)
        return made
