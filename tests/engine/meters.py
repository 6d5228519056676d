"""Meters: processes whose calls are events, for what becomes of these."""

from __future__ import annotations

from typing import Any

from progressor import Namespace, Process
from tests.support import NS


def meters(**options: Any) -> Namespace[Any]:
    """A namespace of them; each call is one event."""
    namespace: Namespace[Any] = Namespace(NS, **options)

    @namespace.init
    async def begin(process: Process[Any]) -> None:
        process.emit("begun")

    @namespace.call
    async def read(process: Process[Any], units: int) -> int:
        process.emit("read", units=units)
        return units

    return namespace
