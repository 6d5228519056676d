"""Memory of the API's OS process: the budget of all requests, and the callers who have taken from it.

Rule: a request takes the memory that it may need before it reads a page or a body. If that is not free it
waits, in turn, for a while. No caller takes more than half while another one waits; everybody gets a first
share.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from progressor.http.server.problems import not_now
from progressor.http.wire.problems import OVERLOADED

# Seconds that a request waits for memory that others have.
_PATIENCE_SECONDS = 10.0
# Multiples of its own bytes that a page takes until it is sent, and a body until it is checked.
PAGE_WEIGHT = 3
BODY_WEIGHT = 2
# Bytes of each value of a body in memory while it is checked; in an import, with its event.
VALUE_BYTES, IMPORTED_VALUE_BYTES = 40, 150


class Memory:
    """The memory of all requests together: `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.free = most
        self._taken_by: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}

    async def take(self, caller: str, size: int) -> None:
        """Take memory for a request of this caller; raise Refusal if it is not free in time."""
        if self._waiting or not self._has_room(caller, size):
            await self._wait(caller, size)
        else:
            self._grant(caller, size)

    def take_now(self, caller: str, size: int) -> None:
        """Take memory for values that a request holds already; raise Refusal if it is not free."""
        if not self._has_room(caller, size):
            raise not_now(OVERLOADED, "no memory is free for this: others read or send large values here")
        self._grant(caller, size)

    def give_back(self, caller: str, size: int) -> None:
        """Give back memory that a request does not need any more, and grant it to those who wait."""
        self.free += size
        self._taken_by[caller] -= size
        if self._taken_by[caller] <= 0:
            del self._taken_by[caller]
        self._serve()

    def _has_room(self, caller: str, size: int) -> bool:
        return size <= self.free and self._may(caller, size)

    def _may(self, caller: str, size: int) -> bool:
        has = self._taken_by[caller]
        if has == 0 or has + size <= self.most // 2:
            return True
        return all(other == caller for other, _ in self._waiting.values())

    def _grant(self, caller: str, size: int) -> None:
        self.free -= size
        self._taken_by[caller] += size

    async def _wait(self, caller: str, size: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = caller, size
        try:
            self._serve()
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await turn
        except TimeoutError:
            text = f"no memory was free for this within {_PATIENCE_SECONDS:g} s"
            raise not_now(OVERLOADED, text) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(caller, size)
            raise
        finally:
            self._waiting.pop(turn, None)

    def _serve(self) -> None:
        """Grant memory to waiting requests, in turn; a caller with a share delays nobody's first one."""
        for turn, (caller, size) in list(self._waiting.items()):
            if turn.done() or not self._may(caller, size):
                continue
            if size > self.free:
                return
            self._grant(caller, size)
            del self._waiting[turn]
            turn.set_result(None)
