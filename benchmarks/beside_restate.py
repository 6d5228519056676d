"""`python -m benchmarks.beside_restate --rounds 5`: a keyed call over HTTP, beside Restate's.

`progressor api` with `progressor worker`, `progressor api --run-handlers`, and Restate's server with its
Python service: all are started here, and called on bare sockets, one at a time and then on 32 connections.
Rule: what is compared is measured in turn, in rounds that go forth and back, and told as medians. CPU is of
all parties: this client, the services, the servers, and PostgreSQL.

Restate's server comes from npm: `npm install @restatedev/restate-server`. `PROGRESSOR_BENCH_RESTATE` names
the program if it is not on the PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks import environment
from benchmarks.engine_in_api import APART, TOGETHER, cpu_of_server, postmaster_of
from benchmarks.over_http import ROOT, Bare, bare, cpu, spawn, timed
from progressor import Client, Namespace, Process, development_database
from progressor.deployment.loops import serving
from progressor.storage import migrations

RESTATE = "Restate"
NS = "bench.keyed"
_CONNECTIONS, _PATIENCE = 32, 60
_PROGRAM, _VARIABLE = "restate-server", "PROGRESSOR_BENCH_RESTATE"
_SCHEMAS = {APART: "apart", TOGETHER: "together"}

keyed = Namespace(NS, state=int)


@keyed.init
async def begin(process: Process[int]) -> None:
    process.state = 0


@keyed.call
async def add(process: Process[int], args: int) -> int:
    process.state += args
    process.emit("added", by=args)
    return process.state


class System(NamedTuple):
    """A system that serves: its URL, the path of a call, and the OS processes that are its own."""

    url: str
    path: str
    pids: Sequence[int]
    schema: str | None


def restate_server() -> str:
    """Return the program of Restate's server; SystemExit with what is missing."""
    found = os.environ.get(_VARIABLE) or shutil.which(_PROGRAM)
    if found is None or not os.access(found, os.X_OK):
        raise SystemExit(
            f"{_PROGRAM} is missing: npm install @restatedev/restate-server, and name it in {_VARIABLE}"
        )
    return found


def _progressor(stack: ExitStack, name: str, dsn: str) -> System:
    schema = _SCHEMAS[name]
    migrations.upgrade(dsn, schema=schema)
    env, app = {"PROGRESSOR_DATABASE_SCHEMA": schema}, "benchmarks.beside_restate:keyed"
    more = [] if name == APART else ["--run-handlers"]
    api, said = spawn(stack, "api", app, "--port", "0", *more, dsn=dsn, **env)
    pids = [api.pid]
    if name == APART:
        pids.append(spawn(stack, "worker", app, dsn=dsn, **env)[0].pid)
    return System(said["url"], f"/v1/namespaces/{NS}/processes/{{}}/calls/add", pids, schema)


def _restate(stack: ExitStack, program: str) -> System:
    ingress, admin, fabric, service = _free_ports(4)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="restate-", dir="/var/tmp"))
    listening = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{fabric}",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_LOG_FILTER": "error",
        "DO_NOT_TRACK": "1",
    }
    server = _start(stack, [program, "--no-logo", "--node-name", "bench", "--base-dir", folder], listening)
    app = ["-m", "hypercorn", "--worker-class", "uvloop", "--bind", f"127.0.0.1:{service}"]
    hypercorn = _start(stack, [str(environment.python()), *app, "benchmarks.peers.restate_peer:app"], {})
    _register(f"http://127.0.0.1:{admin}/deployments", f"http://127.0.0.1:{service}")
    return System(f"http://127.0.0.1:{ingress}", "/counter/{}/add", [server, hypercorn], None)


def _start(stack: ExitStack, command: Sequence[str], env: Mapping[str, str]) -> int:
    """Start a program whose lines nobody reads, until the stack ends; return its pid."""
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for end in (process.wait, process.terminate):
        stack.callback(end)
    return process.pid


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _register(admin: str, service: str) -> None:
    """Tell Restate's server of the service, as soon as both listen."""
    body = json.dumps({"uri": service}).encode()
    request = urllib.request.Request(admin, body, {"Content-Type": "application/json"})
    last = time.monotonic() + _PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE):
                return
        except (urllib.error.URLError, ConnectionError) as error:
            if time.monotonic() > last:
                raise RuntimeError(f"Restate did not start: {error}") from error
            time.sleep(0.2)


def cpu_with_children(pid: int) -> float:
    """The seconds that an OS process and its children have computed, those that are gone included."""
    seconds = cpu(pid)
    gone = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    seconds += sum(map(int, gone)) / os.sysconf("SC_CLK_TCK")
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            # One that ends meanwhile is among those that are gone.
            with suppress(FileNotFoundError, ProcessLookupError):
                seconds += cpu_with_children(int(child))
    return seconds


class Parties:
    """The CPU seconds of all that take part in the calls of one system, from the making on."""

    def __init__(self, system: System, postmaster: int) -> None:
        self._system, self._postmaster = system, postmaster
        self._before = self._now()

    def _now(self) -> float:
        own = time.process_time() + sum(map(cpu_with_children, self._system.pids))
        return own + (cpu_of_server(self._postmaster) if self._system.schema else 0.0)

    def ms(self, calls: int) -> float:
        """Return the milliseconds of one call."""
        return (self._now() - self._before) * 1000 / calls


Callers = Sequence[tuple[Bare, str]]


async def round_of(system: System, callers: Callers, postmaster: int, calls: int) -> Mapping[str, float]:
    """One round of a system: milliseconds, and calls a second."""
    found: dict[str, float] = {}
    for count, times in ((1, calls), (len(callers), max(1, calls * 4 // len(callers)))):
        parties, began = Parties(system, postmaster), time.perf_counter()
        took = await asyncio.gather(*(_calls(*each, times) for each in callers[:count]))
        seconds = time.perf_counter() - began
        every = sorted(each for one in took for each in one)
        name = f"{count} client{'s' if count > 1 else ''}"
        found |= {
            f"{name}, calls a second": len(every) / seconds,
            f"{name}, p50, ms": statistics.median(every),
            f"{name}, p99, ms": every[math.ceil(0.99 * len(every)) - 1],
            f"{name}, CPU of all parties for a call, ms": parties.ms(len(every)),
        }
    return found


async def _calls(caller: Bare, key: str, times: int) -> list[float]:
    return [await timed(lambda: caller.call(key)) for _ in range(times)]


async def measure(
    systems: Mapping[str, System], dsn: str, *, rounds: int, calls: int, warm_up: int
) -> Mapping[str, list[Mapping[str, float]]]:
    """The rounds of each system."""
    async with AsyncExitStack() as stack:
        callers: dict[str, Callers] = {}
        postmaster = postmaster_of(dsn)
        for name, system in systems.items():
            keys = [f"{secrets.token_hex(4)}-{number}" for number in range(_CONNECTIONS)]
            if system.schema is not None:
                async with Client(dsn, database_schema=system.schema) as client:
                    for key in keys:
                        await client.start(NS, key)
            opened = [await stack.enter_async_context(bare(system.url, system.path)) for _ in keys]
            callers[name] = list(zip(opened, keys, strict=True))
            await round_of(system, callers[name], postmaster, warm_up)
        found: dict[str, list[Mapping[str, float]]] = {name: [] for name in systems}
        for number in range(rounds):
            for name in list(systems)[:: 1 if number % 2 else -1]:
                found[name].append(await round_of(systems[name], callers[name], postmaster, calls))
        return found


def told(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    """Return a line for each figure: medians of the rounds, and of the ratios to the first system."""
    lines, first = ["; ".join(found)], next(iter(found))
    for what in found[first][0]:
        against = [each[what] for each in found[first]]
        parts = []
        for rounds in found.values():
            these = [each[what] for each in rounds]
            ratios = [new / old for old, new in zip(against, these, strict=True) if old]
            parts.append(f"{statistics.median(these):.2f} (x {statistics.median(ratios or [0.0]):.2f})")
        lines.append(f"{what}: {', '.join(parts)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=500, help="in a round of one client; else 4 times")
    parser.add_argument("--warm-up", type=int, default=200)
    parser.add_argument("--without-restate", action="store_true", help="measure Progressor alone")
    given = parser.parse_args()
    program = None if given.without_restate else restate_server()
    with development_database() as dsn, ExitStack() as stack:
        systems = {} if program is None else {RESTATE: _restate(stack, program)}
        systems |= {name: _progressor(stack, name, dsn) for name in _SCHEMAS}
        with serving() as runner:
            asked = measure(systems, dsn, rounds=given.rounds, calls=given.calls, warm_up=given.warm_up)
            print("\n".join(told(runner.run(asked))))


if __name__ == "__main__":
    main()
