"""A namespace in bytes that these tests serve: it answers with the bytes it gets, and keeps them."""

from __future__ import annotations

from typing import Any

from progressor import Event, Intent, Namespace, Process, Task


class Keeping:
    async def process(self, task: Task, process: Process[Any]) -> Intent:
        data = task.args or b""
        return Intent(response=data, aux_state=data, events=(Event(data, {"name": "kept"}),))


raws = Namespace("shop.raw", handler=Keeping())
