"""The rate limit of callers: a bucket for each, in this OS process.

Rule: each server counts for itself. A limit over all servers belongs into the gateway in front of them.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from typing import NamedTuple

from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import TOO_MANY_REQUESTS

_MOST_CALLERS = 10_000
_POLICY, _STANDING = "RateLimit-Policy", "RateLimit"


class CallerRate(NamedTuple):
    """The rate of each caller: requests a second in the long run, and requests at once."""

    per_second: float
    burst: int

    @property
    def policy(self) -> str:
        """Return the rate as the header RateLimit-Policy states it."""
        return f'"caller";q={self.burst};w={math.ceil(self.burst / self.per_second)}'


class RateStatus(NamedTuple):
    """The requests that a caller has left after this one; below 0, this one was too many."""

    rate: CallerRate
    left: float

    def check(self) -> None:
        """Raise Refusal (429) if this request was one too many."""
        if self.left < 0:
            wait = math.ceil(-self.left / self.rate.per_second)
            raise Refusal(
                TOO_MANY_REQUESTS,
                f"this server takes {self.rate.per_second:g} requests a second of each caller, "
                f"{self.rate.burst} at once",
                headers={"Retry-After": str(max(1, wait))},
            )

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that state the rate of this caller, and how much of it is left."""
        left = max(0, math.floor(self.left))
        full = math.ceil((self.rate.burst - left) / self.rate.per_second)
        standing = f'"caller";r={left};t={full}'
        return [
            (_POLICY.lower().encode(), self.rate.policy.encode()),
            (_STANDING.lower().encode(), standing.encode()),
        ]


class _Bucket(NamedTuple):
    left: float
    at: float


class RateLimit:
    """The buckets of the callers who asked last."""

    def __init__(self, rate: CallerRate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> RateStatus:
        """Count a request of this caller, and return what is left; one too many takes nothing."""
        now = time.monotonic()
        bucket = self._buckets.get(name, _Bucket(self._rate.burst, now))
        filled = bucket.left + (now - bucket.at) * self._rate.per_second
        full = min(filled, float(self._rate.burst))
        left = full - 1
        self._buckets[name] = _Bucket(full if left < 0 else left, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return RateStatus(self._rate, left)
