"""The methods of a client on the timers of a process, from outside of its handlers.

Rule: each is a call that every namespace has, so it runs after the requests before it and is repeated under
its key as any other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Unpack

from progressor.client.asks import Asks, RequestOptions, Timeout
from progressor.inputs import FIRE_TIMER, SET_TIMER, UNSET_TIMER, check_timer
from progressor.model import TaskType
from progressor.timers import Recurring, SetTimer


def args_of(timer: str) -> dict[str, Any]:
    """Return the arguments that name a timer: none for the one without a name, as older workers know it."""
    return {"timer": timer} if check_timer(timer) else {}


class Timing:
    """The methods of a client that change timers. Errors and `timeout` are those of `call`."""

    _dispatcher: Asks

    async def set_timer(
        self,
        namespace: str,
        process_id: str,
        timer: str = "",
        *,
        after: timedelta | None = None,
        at: datetime | None = None,
        remove: bool = False,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **recurrence: Unpack[Recurring],
    ) -> None:
        """Set a timer of a process, in place of the one of this name; '' is the timer without a name.

        Give one of `after`, which counts from the commit of the step that does it, and `at`; or `every`,
        and what else SetTimer takes. With `remove` the process is removed at that time. Raise
        InvalidRequest for what SetTimer refuses, else as `call`: ProcessNotFound, ProcessBroken,
        ReplyTimeout.
        """
        given = SetTimer(at=at, after=after, remove=remove, name=timer, **recurrence)
        args = args_of(timer) | given.as_json()
        await self._change(namespace, process_id, SET_TIMER, args, idempotency_key, timeout)

    async def unset_timer(
        self,
        namespace: str,
        process_id: str,
        timer: str = "",
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Cancel the timer of a process that has this name, if it has it; other timers stay.

        Raise as `call`: ProcessNotFound, ProcessBroken, ReplyTimeout.
        """
        await self._change(namespace, process_id, UNSET_TIMER, args_of(timer), idempotency_key, timeout)

    async def fire_timer(
        self,
        namespace: str,
        process_id: str,
        timer: str = "",
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """Make the timer of a process that has this name due now; its step comes after this one.

        Raise Rejected if the process has no such timer, else as `call`: ProcessNotFound, ProcessBroken,
        ReplyTimeout.
        """
        await self._change(namespace, process_id, FIRE_TIMER, args_of(timer), idempotency_key, timeout)

    async def _change(
        self,
        namespace: str,
        process_id: str,
        name: str,
        args: dict[str, Any],
        idempotency_key: str | None,
        timeout: Timeout,
    ) -> None:
        options = RequestOptions(idempotency_key)
        request = self._dispatcher.make(TaskType.CALL, namespace, process_id, args or None, options, name)
        await self._dispatcher.ask(request, timeout)
