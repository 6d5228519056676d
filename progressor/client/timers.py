"""The methods of a client on the timer of a process, from outside of its handlers.

Rule: each is a call that every namespace has, so it runs after the requests before it and is repeated under
its key as any other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from progressor.client.requests import Asks, Timeout
from progressor.handlers.timer_calls import FIRE_TIMER, SET_TIMER, UNSET_TIMER
from progressor.model import SetTimer, TaskType


class Timing:
    """The methods of a client that change timers. Errors and `timeout` are those of `call`."""

    _dispatcher: Asks

    async def set_timer(
        self,
        namespace: str,
        process_id: str,
        *,
        after: timedelta | None = None,
        at: datetime | None = None,
        remove: bool = False,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Set the timer of a process, in place of the one that it has: give one of `after` and `at`.

        `after` counts from the commit of the step that does it. With `remove` the process is removed at
        that time. Raise InvalidRequest if not exactly one is given, else as `call`: ProcessNotFound,
        ProcessBroken, ReplyTimeout.
        """
        timer = SetTimer(at=at, after=after, remove=remove)
        args = {"at": timer.at, "after": timer.after, "remove": timer.remove}
        await self._change(namespace, process_id, SET_TIMER, args, idempotency_key, timeout)

    async def unset_timer(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Cancel the timer of a process, if it has one.

        Raise as `call`: ProcessNotFound, ProcessBroken, ReplyTimeout.
        """
        await self._change(namespace, process_id, UNSET_TIMER, None, idempotency_key, timeout)

    async def fire_timer(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Make the timer of a process due now; its step comes after this one.

        Raise Rejected if the process has no timer, else as `call`: ProcessNotFound, ProcessBroken,
        ReplyTimeout.
        """
        await self._change(namespace, process_id, FIRE_TIMER, None, idempotency_key, timeout)

    async def _change(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: Any,
        idempotency_key: str | None,
        timeout: Timeout,
    ) -> None:
        request = self._dispatcher.make(
            TaskType.CALL, namespace, process_id, args, idempotency_key, None, name
        )
        await self._dispatcher.ask(request, timeout)
