"""The instruments: rates and latencies of a closed loop, and what a step costs on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from progressor.bench.databases import run_sql

Figures = dict[str, float]
Turns = Callable[[], Awaitable[int]]

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROBE = """
SELECT
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS wal,
    (
        SELECT array_agg(pid) FROM pg_stat_activity
        WHERE datname = current_database() OR datname IS NULL
    ) AS pids
"""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie; 0 of nothing."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens elsewhere; looking must cost nothing of what is measured."""
    while not condition():  # noqa: ASYNC110 - an event would be work in each step
        await asyncio.sleep(0.005)


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def _cpu_seconds(pids: Sequence[int]) -> dict[int, float]:
    """CPU seconds of processes so far; nothing of those that cannot be seen from here."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICK
    return seconds


class Meter:
    """What goes on within a block: seconds, CPU of this process and of PostgreSQL, WAL."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.seconds = 0.0

    async def __aenter__(self) -> Self:
        self._before = await asyncio.to_thread(self._probe)
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
        if error is None:
            self._after = await asyncio.to_thread(self._probe)

    def _probe(self) -> tuple[float, dict[int, float]]:
        (row,) = run_sql(self._dsn, _PROBE)
        return row["wal"], _cpu_seconds(row["pids"])

    def per(self, count: int) -> Figures:
        """The rate of `count` things in the block, and the cost of each."""
        if not count or not self.seconds:
            return {"rate": 0.0, "count": 0.0}
        (wal, server), (wal_then, server_then) = self._after, self._before
        figures = {
            "rate": count / self.seconds,
            "count": float(count),
            "us": self.seconds / count * 1e6,
            "client_cpu_us": self._cpu / count * 1e6,
            "wal_bytes": (wal - wal_then) / count,
        }
        if server:
            used = sum(seconds - server_then.get(pid, 0.0) for pid, seconds in server.items())
            figures["server_cpu_us"] = used / count * 1e6
        return figures


class ClosedLoop:
    """Clients that each do one thing after another; only what ends within the window is counted."""

    def __init__(self, clients: int, act: Callable[[int], Awaitable[None]]) -> None:
        self._clients = clients
        self._act = act
        self._going = True
        self._latencies: list[float] = []
        self.done = 0
        """All that was done, in the window or not."""

    async def run(self, dsn: str, *, warmup: float, seconds: float, turns: Turns | None = None) -> Figures:
        """Rate, cost, p50 and p99 in milliseconds; with `turns`, the round trips of each."""
        async with asyncio.TaskGroup() as group:
            for client in range(self._clients):
                group.create_task(self._go(client))
            await asyncio.sleep(warmup)
            async with Meter(dsn) as meter:
                turned = 0 if turns is None else await turns()
                self._latencies.clear()
                await asyncio.sleep(seconds)
                latencies = sorted(self._latencies)
                turned = 0 if turns is None else await turns() - turned
            self._going = False
        figures = meter.per(len(latencies)) | spread(latencies)
        if turns is not None and latencies:
            figures["round_trips"] = turned / len(latencies)
        return figures

    async def _go(self, client: int) -> None:
        while self._going:
            began = time.perf_counter()
            await self._act(client)
            self._latencies.append(time.perf_counter() - began)
            self.done += 1


def spread(latencies: Sequence[float], name: str = "") -> Figures:
    """p50 and p99 of sorted seconds, in milliseconds."""
    return {
        f"{name}p50_ms": percentile(latencies, 0.5) * 1e3,
        f"{name}p99_ms": percentile(latencies, 0.99) * 1e3,
    }
