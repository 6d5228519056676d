"""A careful caller: it asks under one key until there is an answer, and keeps a journal of both.

Rule: an intention is on the disk before it is carried out, an answer before anybody acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from benchmarks.chaos.journal import Journal
from progressor import (
    Client,
    ProcessAlreadyExists,
    ProgressorError,
    Rejected,
    ReplyTimeout,
    StorageUnavailable,
    TaskNotFound,
)

T = TypeVar("T")

_PAUSE = 0.05


class Caller:
    """Asks over one client; `asked` are the keys under which a predecessor asked."""

    def __init__(
        self, client: Client, journal: Journal, *, reply: float, asked: Iterable[str] = ()
    ) -> None:
        self._client = client
        self._journal = journal
        self._reply_seconds = reply
        self._asked = set(asked)

    def has_asked(self, key: str) -> bool:
        """Return whether it, or its predecessor, asked under this key."""
        return key in self._asked

    async def ask(
        self, key: str, verb: str, namespace: str, process: str, name: str | None = None, args: Any = None
    ) -> Any:
        """The answer; None if it was refused, or is none."""
        if key not in self._asked:
            self._asked.add(key)
            await self._journal.add(
                do="ask", key=key, verb=verb, namespace=namespace, process=process, name=name, args=args
            )
        try:
            answer = await self.persistently(
                key, lambda: self._send(key, verb, namespace, process, name, args)
            )
        except Rejected as rejection:
            await self._journal.add(do="rejected", key=key, reason=rejection.reason)
        except ProcessAlreadyExists:
            # Its own begin, if the check finds that it was deleted since.
            await self._journal.add(do="exists", key=key)
        except ProgressorError as error:
            # Nothing that a fault may cause: the check reports it.
            await self._journal.add(do="error", key=key, error=f"{type(error).__name__}: {error}")
        else:
            if verb in ("notify", "remove"):
                await self._journal.add(do="accepted", key=key)
                return None
            await self._journal.add(do="answer", key=key, value=answer)
            return answer
        return None

    async def _send(
        self, key: str, verb: str, namespace: str, process: str, name: str | None, args: Any
    ) -> Any:
        handle = self._client.process(namespace, process)
        common: dict[str, Any] = {"idempotency_key": key, "timeout": self._reply_seconds}
        match verb:
            case "start":
                return await handle.start(args, **common)
            case "call":
                return await handle.call(str(name), args, **common)
            case "notify":
                return await handle.notify(str(name), args, **common)
            case "remove":
                return await handle.remove()
            case _:
                raise ValueError(f"no such verb: {verb}")

    async def persistently(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again until there is an answer, whatever happens to connections and servers."""
        while True:
            try:
                return await ask()
            except (ReplyTimeout, StorageUnavailable, TaskNotFound) as error:
                if isinstance(error, TaskNotFound) and not error.is_deleted:
                    raise
                await self._journal.add(do="again", key=key, error=type(error).__name__)
                await asyncio.sleep(_PAUSE)
