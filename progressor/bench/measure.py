"""The instruments: rates and latencies of a closed loop, and the cost of a step on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from progressor.bench.databases import Probe

Figures = dict[str, float]

_TICK = os.sysconf("SC_CLK_TCK")
# Only the database's own backends and tables: the server's other processes serve all of its databases.
_PROBE = """
SELECT
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS wal,
    (
        SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
        WHERE
            relkind = 'r'
            AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
    )::float8 AS stored,
    ARRAY(
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    ) AS pids
"""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted values lie; 0 if there are none."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, looked at every 5 ms, so that the wait costs the measured code nothing."""
    while not condition():  # noqa: ASYNC110 - an event would be work in each step
        await asyncio.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Window:
    """The time of a measurement: the warm-up, and the seconds that are measured."""

    seconds: float
    warmup: float = 1.0

    async def warm_up(self, _counted: Callable[[], int]) -> None:
        """Wait until the measurement may begin; `counted` returns the number of acts so far."""
        await asyncio.sleep(self.warmup)

    async def last(self, _counted: Callable[[], int]) -> None:
        """Wait until the measurement is over."""
        await asyncio.sleep(self.seconds)


def _cpu_seconds(pids: Sequence[int]) -> dict[int, float]:
    """Return the CPU seconds of OS processes so far, without those that cannot be seen from here."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            seconds[pid] = _nanoseconds(pid) / 1e9
    return seconds


def _nanoseconds(pid: int) -> float:
    """Return the CPU time of an OS process; to the tick only, if the kernel has no schedstat."""
    with contextlib.suppress(FileNotFoundError):
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK * 1e9


@dataclass(frozen=True, slots=True)
class _Look:
    """The WAL, the storage and the CPU seconds that the server has used so far."""

    wal: float
    stored: float
    server: dict[int, float]


class Meter:
    """The meter of a block: seconds, CPU of this process and of PostgreSQL, WAL, bytes stored."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.seconds = 0.0

    async def __aenter__(self) -> Self:
        self._probe = await asyncio.to_thread(Probe, self._dsn, _PROBE)
        self._before = await asyncio.to_thread(self._look)
        self._cpu = time.process_time()
        self._began = time.perf_counter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self._cpu = time.process_time() - self._cpu
        try:
            if error is None:
                self._after = await asyncio.to_thread(self._look)
        finally:
            self._probe.close()

    def _look(self) -> _Look:
        row = self._probe.ask()
        return _Look(row["wal"], row["stored"], _cpu_seconds(row["pids"]))

    def per(self, count: int) -> Figures:
        """Return the rate of `count` items in the block, and the cost of each."""
        if not count or not self.seconds:
            return {"rate": 0.0, "count": 0.0}
        before, after = self._before, self._after
        figures = {
            "rate": count / self.seconds,
            "count": float(count),
            "us": self.seconds / count * 1e6,
            "client_cpu_us": self._cpu / count * 1e6,
            "wal_bytes": (after.wal - before.wal) / count,
            "stored_bytes": (after.stored - before.stored) / count,
        }
        if after.server:
            used = sum(seconds - before.server.get(pid, 0.0) for pid, seconds in after.server.items())
            figures["server_cpu_us"] = used / count * 1e6
        return figures


class ClosedLoop:
    """Clients that each act again and again; only acts that end within the window are counted."""

    def __init__(self, clients: int, act: Callable[[int], Awaitable[None]]) -> None:
        self._clients = clients
        self._act = act
        self._going = True
        self._latencies: list[float] = []
        self.done = 0
        """The number of all acts, in the window or not."""

    async def run(self, meter: Meter, window: Window) -> Figures:
        """Return rate, cost, p50 and p99 in milliseconds of the acts within the window."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.go_on())
            await window.warm_up(lambda: self.done)
            async with meter:
                self._latencies.clear()
                await window.last(lambda: self.done)
                latencies = sorted(self._latencies)
            self.stop()
        return meter.per(len(latencies)) | spread(latencies)

    async def go_on(self) -> list[float]:
        """Run the clients until `stop`; return the seconds of each act."""
        await asyncio.gather(*(self._go(client) for client in range(self._clients)))
        return self._latencies

    def stop(self) -> None:
        """Let no further act begin; those that have begun still end."""
        self._going = False

    async def _go(self, client: int) -> None:
        while self._going:
            began = time.perf_counter()
            await self._act(client)
            self._latencies.append(time.perf_counter() - began)
            self.done += 1


def spread(latencies: Sequence[float], name: str = "") -> Figures:
    """Return p50 and p99 of sorted seconds, in milliseconds."""
    return {
        f"{name}p50_ms": percentile(latencies, 0.5) * 1e3,
        f"{name}p99_ms": percentile(latencies, 0.99) * 1e3,
    }
