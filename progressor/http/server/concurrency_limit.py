"""Places of requests: how many are under way here, and how many of them may be one caller's.

Rule: a request too many is refused at once, before its body is read; if all places are taken, before its
caller is authenticated, too. A caller may hold as many places as are free beside them.
"""

from __future__ import annotations

from collections import Counter

from progressor.http.server.memory import Memory
from progressor.http.server.problems import Refusal, not_now
from progressor.http.wire.problems import OVERLOADED, TOO_LARGE, TOO_MANY_REQUESTS


class Place:
    """One request's place among those that are under way, from `enter` to `leave`."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._is_taken = False
        self._caller: str | None = None
        self._memory = 0

    def enter(self) -> None:
        """Take the place; raise Refusal (503) if none is free."""
        if not self._places.free:
            most, what = self._places.most, self._places.what
            raise not_now(OVERLOADED, f"{most:,} {what} here, which is as many as it takes")
        self._places.taken += 1
        self._is_taken = True

    def claim(self, caller: str) -> None:
        """Count the request as this caller's; raise Refusal (429) if fewer places are left than it has."""
        places = self._places
        if places.taken_by[caller] > places.free + 1:
            raise not_now(
                TOO_MANY_REQUESTS,
                f"{places.taken_by[caller]:,} {places.what} here of this caller, and the other "
                "places are for others",
            )
        places.taken_by[caller] += 1
        self._caller = caller

    async def reserve(self, size: int) -> None:
        """Take so many bytes of memory until the request is answered; raise Refusal if they are taken."""
        self._check_fits(size)
        await self._places.memory.take(self._caller or "", size)
        self._memory += size

    def reserve_now(self, size: int) -> None:
        """Take memory for values that were read already; raise Refusal if it is not free."""
        self._check_fits(size)
        self._places.memory.take_now(self._caller or "", size)
        self._memory += size

    def _check_fits(self, size: int) -> None:
        most = self._places.memory.most
        if self._memory + size > most:
            raise Refusal(
                TOO_LARGE,
                f"this takes about {(self._memory + size) >> 20:,} MiB of memory, and all requests of this "
                f"server have {most >> 20:,} MiB together",
            )

    def keep(self, size: int) -> None:
        """Give back all memory but so many bytes."""
        if self._memory > size:
            self._places.memory.give_back(self._caller or "", self._memory - size)
            self._memory = size

    def leave(self) -> None:
        """Give the place, and its memory, to other requests."""
        self.keep(0)
        places = self._places
        places.taken -= self._is_taken
        self._is_taken = False
        if self._caller is not None:
            places.taken_by[self._caller] -= 1
            if not places.taken_by[self._caller]:
                del places.taken_by[self._caller]
            self._caller = None


class Places:
    """The places of one server, and the callers who have them."""

    def __init__(self, most: int, memory: Memory, *, what: str = "requests are under way") -> None:
        self.most = most
        self.what = what
        self.memory = memory
        self.taken = 0
        self.taken_by: Counter[str] = Counter()

    @property
    def free(self) -> int:
        """Return how many more requests may be under way."""
        return self.most - self.taken
