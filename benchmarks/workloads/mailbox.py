"""mailbox: a process on which very many calls wait, the processes beside it, and many requests at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

from benchmarks.workloads.names import STYLES
from benchmarks.workloads.rows import add_mailbox, unattended
from progressor.bench import flows
from progressor.bench.chain import check_counts
from progressor.bench.databases import run_sql, runner
from progressor.bench.flows import PAD, Count
from progressor.bench.measure import ClosedLoop, Figures, Meter, Window, spread
from progressor.engine import Engine
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.loggers import Logger

log = Logger("benchmarks.mailbox")

_LONG = timedelta(hours=1)
_CALLERS = 4
_LOOKS = 0.05


class _Busy:
    """A process whose step runs until its door is opened, and the requests that wait behind it."""

    def __init__(self, dsn: str, names: str) -> None:
        self._dsn = dsn
        self.names = STYLES[names]
        self.steps = flows.Steps()
        self._holding = asyncio.Event()
        self._door = asyncio.Event()
        self.namespace = self._namespace()
        self.process_id = self.names.process_id(0)

    def _namespace(self) -> Namespace:
        """Return a namespace whose processes answer calls; the call `hold` waits until the door is open."""
        namespace = Namespace(
            self.names.namespace, state=Count, concurrency=flows.CONCURRENCY, step_timeout=_LONG
        )

        @namespace.init
        async def init(process: Process[Count], _args: dict[str, Any]) -> None:
            process.state = Count()

        @namespace.call
        async def hold(_process: Process[Count], _args: dict[str, Any]) -> None:
            self._holding.set()
            await self._door.wait()

        @namespace.call
        async def add(process: Process[Count], _args: dict[str, Any]) -> None:
            process.state.n += 1
            process.emit("added", pad=PAD)

        @namespace.call
        async def take(process: Process[Count], _args: dict[str, Any]) -> None:
            self.steps.count += 1
            process.state.n += 1
            process.emit("taken", pad=PAD)

        return namespace

    @asynccontextmanager
    async def kept(self, engine: Engine) -> AsyncIterator[None]:
        """Start the process, and keep its step running within the block."""
        client, name = engine.client, self.names.namespace
        await client.start(name, self.process_id, {})
        held = asyncio.create_task(client.call(name, self.process_id, "hold", {}, timeout=_LONG))
        await self._holding.wait()
        try:
            yield
        finally:
            self.let_go()
            await held

    def let_go(self) -> None:
        """Let the step end, so that the requests behind it run."""
        self._door.set()

    async def fill(self, count: int, kind: Literal["call", "notify"]) -> None:
        await asyncio.to_thread(
            add_mailbox, runner(self._dsn), self.names, self.process_id, count, kind=kind, name="take"
        )

    async def start_others(self, engine: Engine, count: int) -> list[str]:
        """Start other processes, and return their ids."""
        ids = [self.names.process_id(number) for number in range(1, count + 1)]
        await asyncio.gather(*(engine.client.start(self.names.namespace, each, {}) for each in ids))
        return ids

    def calls(self, engine: Engine, ids: list[str]) -> ClosedLoop:
        """Return a loop with a client for each of the other processes."""

        async def act(number: int) -> None:
            await engine.client.call(self.names.namespace, ids[number], "add", {})

        return ClosedLoop(len(ids), act)

    def appends(self, engine: Engine) -> ClosedLoop:
        """Return a loop with one client, which adds requests to the mailbox."""

        async def act(_number: int) -> None:
            await engine.client.notify(self.names.namespace, self.process_id, "take", {})

        return ClosedLoop(1, act)


async def beside(
    dsn: str, *, waiting: int, processes: int, seconds: float, warmup: float = 1.0, names: str = "long"
) -> Figures:
    """Measure calls of processes without a mailbox beside them, beside a long one, and after an ANALYZE.

    The mailbox belongs to another process, busy all the time. Measures one more request in it too.
    """
    busy = _Busy(dsn, names)
    await asyncio.to_thread(unattended, runner(dsn))
    figures: Figures = {"count": float(waiting)}
    done = 0
    async with Engine(dsn, [busy.namespace]) as engine:
        ids = await busy.start_others(engine, processes)
        async with busy.kept(engine):
            for phase in ("alone", "beside", "analyzed"):
                if phase == "beside":
                    await busy.fill(waiting, "call")
                elif phase == "analyzed":
                    await asyncio.to_thread(run_sql, dsn, "ANALYZE")
                loop = busy.calls(engine, ids)
                calls = await loop.run(Meter(dsn), Window(seconds, warmup))
                done += loop.done
                for name in ("rate", "server_cpu_us", "client_cpu_us", "p50_ms"):
                    figures[f"{phase}_{name}"] = calls[name]
                window = Window(seconds / 5, warmup / 5)
                appended = await busy.appends(engine).run(Meter(dsn), window)
                figures[f"{phase}_append_p50_ms"] = appended["p50_ms"]
    check_counts(dsn, busy.names.namespace, ids, "call", steps=done, events=done)
    for phase in ("beside", "analyzed"):
        figures[f"{phase}_by_alone"] = figures[f"{phase}_rate"] / figures["alone_rate"]
    return figures


async def emptied(dsn: str, *, waiting: int, most: float = 300.0, names: str = "long") -> Figures:
    """Measure how fast a mailbox is worked off, and the latency of a few other processes' calls meanwhile.

    It stops after `most` seconds; `drained` counts the requests that were done by then.
    """
    busy = _Busy(dsn, names)
    steps = busy.steps
    async with Engine(dsn, [busy.namespace]) as engine:
        ids = await busy.start_others(engine, _CALLERS)
        loop = busy.calls(engine, ids)
        async with busy.kept(engine):
            await busy.fill(waiting, "notify")
            async with Meter(dsn) as meter, asyncio.TaskGroup() as group:
                calls = group.create_task(loop.go_on())
                busy.let_go()
                # The first look comes before the first request: otherwise those before it would be missing.
                looks = await _looks(lambda: steps.count, waiting, most)
                drained = looks[-1][1]
                called = loop.done
                loop.stop()
        latencies = sorted(calls.result())
    steps_saved = steps.count
    check_counts(
        dsn, busy.names.namespace, [busy.process_id], "notify", steps=steps_saved, events=steps_saved
    )
    tenth = max(1, len(looks) // 10)
    return {
        **meter.per(drained + called),
        "rate": drained / meter.seconds,
        "drained": float(drained),
        "calls_rate": called / meter.seconds,
        "first_rate": _rate(looks[: tenth + 1]),
        "last_rate": _rate(looks[-tenth - 1 :]),
        **spread(latencies),
    }


async def _looks(counted: Callable[[], int], goal: int, most: float) -> list[tuple[float, int]]:
    """Return (time, count) every 50 ms, until the count reaches the goal or `most` seconds are over."""
    began = time.perf_counter()
    looks = [(began, counted())]
    while looks[-1][1] < goal and looks[-1][0] < began + most:
        await asyncio.sleep(_LOOKS)
        looks.append((time.perf_counter(), counted()))
    return looks


def _rate(looks: Sequence[tuple[float, int]]) -> float:
    (began, before), (ended, after) = looks[0], looks[-1]
    return (after - before) / (ended - began)


async def crowd(dsn: str, *, processes: int, names: str = "long") -> Figures:
    """Measure so many starts at once by one client, in a database without statistics; then calls."""
    chosen = STYLES[names]
    await asyncio.to_thread(unattended, runner(dsn))
    ids = [chosen.process_id(number) for number in range(1, processes + 1)]
    async with Engine(dsn, [flows.entity(chosen.namespace)]) as engine:
        client, name = engine.client, chosen.namespace
        starts = await _at_once(dsn, "starts", [client.start(name, each, {}) for each in ids])
        calls = await _at_once(dsn, "calls", [client.call(name, each, "add", {}) for each in ids])
    if not starts["starts_failed"] + calls["calls_failed"]:
        check_counts(dsn, name, None, "call", steps=processes, events=processes)
    return {"count": float(processes), **starts, **calls}


async def _at_once(dsn: str, what: str, requests: Sequence[Awaitable[object]]) -> Figures:
    """Return the seconds of all requests together, the rate, the CPU of one, and the number that failed."""
    async with Meter(dsn) as meter:
        answers = await asyncio.gather(*requests, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    if failed:
        log.error("one of the %s that failed: %r", what, failed[0])
    costs = meter.per(len(requests))
    figures = {f"{what}_{name}": costs[name] for name in ("rate", "client_cpu_us", "server_cpu_us")}
    return figures | {f"{what}_s": meter.seconds, f"{what}_failed": float(len(failed))}
