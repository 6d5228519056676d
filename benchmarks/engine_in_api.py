"""`python -m benchmarks.engine_in_api --rounds 8`: an API that runs the handlers, or a worker beside it.

`progressor api` with `progressor worker`; `progressor api --run-handlers`; and two of these, as many OS
processes as the first: all on one PostgreSQL, each side in a schema of its own. This process makes the same
calls to each on bare sockets: one at a time, then on 32 connections. Rule: what is compared is measured in
turn, in rounds that go forth and back, and told as medians of the rounds, with those of the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import secrets
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from benchmarks.over_http import NS, Bare, bare, cpu, spawn, timed
from progressor import Client, development_database
from progressor.deployment.loops import serving
from progressor.storage import migrations

APART, TOGETHER, TWICE = "API and worker", "API that runs handlers", "two of these"
_APP, _CONNECTIONS = "benchmarks.over_http:counters", 32


class Side(NamedTuple):
    """One way to serve: its URLs, its schema, and the OS processes that are its own."""

    urls: Sequence[str]
    schema: str
    pids: Sequence[int]


class Caller(NamedTuple):
    """A connection, and the process that it calls."""

    socket: Bare
    process_id: str

    async def call(self, times: int) -> list[float]:
        """Call so many times, one after the other; return the milliseconds of each."""
        return [await timed(lambda: self.socket.call(self.process_id)) for _ in range(times)]


def start(stack: ExitStack, name: str, dsn: str, schema: str) -> Side:
    """Migrate the schema, and start the OS processes of a side."""
    migrations.upgrade(dsn, schema=schema)
    env = {"PROGRESSOR_DATABASE_SCHEMA": schema}
    more = [] if name == APART else ["--run-handlers"]
    apis = [
        spawn(stack, "api", _APP, "--port", "0", *more, dsn=dsn, **env)
        for _ in range(2 if name == TWICE else 1)
    ]
    pids = [process.pid for process, _ in apis]
    if name == APART:
        pids.append(spawn(stack, "worker", _APP, dsn=dsn, **env)[0].pid)
    return Side([said["url"] for _, said in apis], schema, pids)


def cpu_of_server(postmaster: int) -> float:
    """The seconds that a PostgreSQL of this machine has computed: its sessions, and those that are gone."""
    seconds = 0.0
    for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        # One that ends meanwhile is among those that are gone.
        with suppress(FileNotFoundError, ProcessLookupError):
            seconds += cpu(int(child))
    gone = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()[13:15]
    return seconds + sum(map(int, gone)) / os.sysconf("SC_CLK_TCK")


def postmaster_of(dsn: str) -> int:
    """The OS process that has started the server's sessions."""
    with psycopg.connect(dsn) as connection:
        session = connection.info.backend_pid
        return int(Path(f"/proc/{session}/stat").read_text().rpartition(")")[2].split()[1])


class Meter:
    """The CPU of a side, and of PostgreSQL, from its making on."""

    def __init__(self, side: Side, postmaster: int) -> None:
        self._pids, self._postmaster = side.pids, postmaster
        self._before = self._now()

    def _now(self) -> tuple[float, float]:
        return sum(map(cpu, self._pids)), cpu_of_server(self._postmaster)

    def used(self, name: str, calls: int) -> Mapping[str, float]:
        """Return the milliseconds of one call."""
        own, server = (
            (now - before) * 1000 / calls for now, before in zip(self._now(), self._before, strict=True)
        )
        return {
            f"{name}, CPU of the side for a call": own,
            f"{name}, CPU of PostgreSQL for a call": server,
            f"{name}, CPU of both for a call": own + server,
        }


async def round_of(
    side: Side, callers: Sequence[Caller], postmaster: int, calls: int
) -> Mapping[str, float]:
    """One round of a side: milliseconds, and calls a second."""
    meter, name = Meter(side, postmaster), "1 connection"
    lone = await callers[0].call(calls)
    found = {f"{name}, p50": statistics.median(lone), **meter.used(name, calls)}
    meter, name = Meter(side, postmaster), f"{len(callers)} connections"
    times = max(1, calls * 4 // len(callers))
    began = time.perf_counter()
    took = await asyncio.gather(*(caller.call(times) for caller in callers))
    seconds = time.perf_counter() - began
    every = sorted(each for one in took for each in one)
    return found | {
        f"{name}, calls a second": len(every) / seconds,
        f"{name}, p50": statistics.median(every),
        f"{name}, p99": every[math.ceil(0.99 * len(every)) - 1],
        **meter.used(name, len(every)),
    }


async def measure(
    sides: Mapping[str, Side], dsn: str, *, rounds: int, calls: int, warm_up: int
) -> Mapping[str, list[Mapping[str, float]]]:
    """The rounds of each side."""
    async with AsyncExitStack() as stack:
        callers: dict[str, list[Caller]] = {}
        postmaster = postmaster_of(dsn)
        for name, side in sides.items():
            ids = [f"{secrets.token_hex(4)}-{number}" for number in range(_CONNECTIONS)]
            async with Client(dsn, database_schema=side.schema) as client:
                for process_id in ids:
                    await client.start(NS, process_id)
            callers[name] = [
                Caller(await stack.enter_async_context(bare(side.urls[number % len(side.urls)])), each)
                for number, each in enumerate(ids)
            ]
            await round_of(side, callers[name], postmaster, warm_up)
        found: dict[str, list[Mapping[str, float]]] = {name: [] for name in sides}
        for number in range(rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                found[name].append(await round_of(sides[name], callers[name], postmaster, calls))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=500, help="in a round on one connection; else 4 times")
    parser.add_argument("--warm-up", type=int, default=200)
    given = parser.parse_args()
    with development_database() as dsn, ExitStack() as stack:
        names = {APART: "apart", TOGETHER: "together", TWICE: "twice"}
        sides = {name: start(stack, name, dsn, schema) for name, schema in names.items()}
        with serving() as runner:
            asked = measure(sides, dsn, rounds=given.rounds, calls=given.calls, warm_up=given.warm_up)
            found = runner.run(asked)
    print("; ".join(sides))
    for what in found[APART][0]:
        rounds = [[each[what] for each in found[name]] for name in sides]
        print(f"{what}: {', '.join(map(_told, [rounds[0]] * len(rounds), rounds))}")


def _told(first: Sequence[float], these: Sequence[float]) -> str:
    """The median of these rounds, and that of their ratios to those of the first side."""
    ratios = [new / old for old, new in zip(first, these, strict=True) if old]
    return f"{statistics.median(these):.2f} (x {statistics.median(ratios or [0.0]):.2f})"


if __name__ == "__main__":
    main()
