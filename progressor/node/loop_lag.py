"""The lag of the event loop: how late it runs what is due. A handler that blocks it shows here.

Rule: it is sampled so often that no block of a tenth of a second is missed, and can be scraped even while
the loop is blocked. A watchdog names the handler that blocks it for a second or longer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from threading import Lock

from progressor import metrics
from progressor.node.watchdog import Running, Watchdog
from progressor.supervision import Background

# Seconds: between two samples; how long the longest lag is remembered, longer than from scrape to scrape.
_INTERVAL, _REMEMBERED = 0.05, 60.0


class LoopLag:
    """The sampler of the running event loop's lag.

    `running` finds the step that runs in an asyncio task.
    """

    def __init__(self, running: Running = lambda _: None) -> None:
        self._background = Background()
        self._lock = Lock()
        # Times and lags, in seconds and milliseconds; only lags that no later one exceeds: the first is the
        # longest.
        self._seen: deque[tuple[float, float]] = deque()
        self._due: float | None = None
        self._watchdog = Watchdog(running, self._late)

    def start(self) -> None:
        metrics.LOOP_LAG_MAX.set_function(self.longest)
        self._background.keep("loop lag", self._sample)
        self._watchdog.start()

    async def stop(self) -> None:
        self._watchdog.stop()
        await self._background.stop()
        with self._lock:
            self._seen.clear()
            self._due = None

    async def _sample(self) -> None:
        while True:
            due = self._due = time.monotonic() + _INTERVAL
            await asyncio.sleep(_INTERVAL)
            now = time.monotonic()
            lag = max(0.0, (now - due) * 1000)
            metrics.LOOP_LAG.observe(lag)
            self._watchdog.over(due, now - due)
            self._remember(now, lag)

    def _remember(self, now: float, lag: float) -> None:
        with self._lock:
            while self._seen and self._seen[-1][1] <= lag:
                self._seen.pop()
            self._seen.append((now, lag))
            while self._seen[0][0] < now - _REMEMBERED:
                self._seen.popleft()

    def longest(self) -> float:
        """Return the longest lag of the last minute in milliseconds, even if it still lasts.

        Any thread may call this.
        """
        _, late = self._late()
        with self._lock:
            return max(late * 1000, self._seen[0][1] if self._seen else 0.0)

    def _late(self) -> tuple[float, float]:
        """Return when the next sample is due and how late it is by now, in seconds; from any thread."""
        now, due = time.monotonic(), self._due
        return (now, 0.0) if due is None else (due, max(0.0, now - due))
