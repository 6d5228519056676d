"""Functions that this worker lacks and another live one serves, as in a rolling deploy.

Rule: a request for one is left to that worker. This one hands it back unharmed, and for a while claims no
request for the function. If no live worker serves it, the request is refused here: none waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from progressor.errors import SchemaMismatch, StorageUnavailable
from progressor.handlers.namespace import Namespace
from progressor.model import Task
from progressor.node.wakes import chosen
from progressor.storage import Kind, Storage

Wake = Callable[[int, str, Kind], None]

# Seconds in which a request for a function is left to others without a look at who is alive.
_MOST_SECONDS = 5.0


class LeftToOthers(Exception):
    """Raised in a step that did not begin, because another worker serves its function.

    `wake` wakes that worker; None if it is not known for now who serves the function.
    """

    def __init__(self, function: str, wake: Callable[[], None] | None) -> None:
        super().__init__(function)
        self.function = function
        self.wake = wake


class ForeignFunctions:
    """The functions of one namespace that are left to other workers for now."""

    def __init__(
        self, namespace: Namespace, storage: Storage, *, worker_id: int, lease_age: timedelta, wake: Wake
    ) -> None:
        self._namespace = namespace
        self._storage = storage
        self._worker_id = worker_id
        self._lease_age = lease_age
        self._wake = wake
        self._seconds = min(_MOST_SECONDS, lease_age.total_seconds() / 3)
        # By function: until when it is left to others, and a worker that serves it.
        self._left: dict[str, tuple[float, int]] = {}

    def left(self) -> Sequence[str]:
        """Return the functions whose requests are left to others for now."""
        if self._left:
            now = time.monotonic()
            self._left = {name: each for name, each in self._left.items() if each[0] > now}
        return tuple(self._left)

    async def leave(self, task: Task) -> None:
        """Raise LeftToOthers for a task whose function this worker lacks, if another live one has it."""
        function = task.function
        until, other = self._left.get(function, (0.0, 0))
        if until <= time.monotonic():
            try:
                others = await self._storage.others_serving(
                    self._namespace.name, function, worker_id=self._worker_id, lease_age=self._lease_age
                )
            except (StorageUnavailable, SchemaMismatch):
                raise LeftToOthers(function, None) from None
            if not others:
                self._left.pop(function, None)
                return
            other = chosen(others)
            self._left[function] = (time.monotonic() + self._seconds, other)
        kind: Kind = "timers" if task.task_type.is_timer else "calls"
        raise LeftToOthers(function, partial(self._wake, other, self._namespace.name, kind))
