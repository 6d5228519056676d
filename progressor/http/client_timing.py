"""The methods of HttpClient that change the timer of a process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import Any

from progressor.client.asking import Timeout
from progressor.model import SetTimer


class HttpTiming(ABC):
    """The part of HttpClient that changes timers."""

    @abstractmethod
    async def _ask(
        self,
        namespace: str,
        process_id: str,
        path: str,
        args: Any,
        idempotency_key: str | None,
        context: Any,
        timeout: Timeout,
        *,
        method: str = "POST",
    ) -> Any: ...

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
        """As Client.set_timer."""
        timer = SetTimer(at=at, after=after, remove=remove)
        seconds = None if timer.after is None else timer.after.total_seconds()
        args = {"at": timer.at, "after": seconds, "remove": remove}
        path = "/timers/default"
        await self._ask(namespace, process_id, path, args, idempotency_key, None, timeout, method="PATCH")

    async def unset_timer(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """As Client.unset_timer."""
        path = "/timers/default"
        await self._ask(namespace, process_id, path, None, idempotency_key, None, timeout, method="DELETE")

    async def fire_timer(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
    ) -> None:
        """As Client.fire_timer."""
        path = "/timers/default/fire"
        await self._ask(namespace, process_id, path, None, idempotency_key, None, timeout)
