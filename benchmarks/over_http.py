"""`python -m benchmarks.over_http --calls 2000`: what the HTTP API adds to a call, and what it costs.

A worker and an API are OS processes of their own, on one PostgreSQL. This process asks the same call in
turn by a Client, over HTTP on a bare socket, and by HttpClient, one at a time; then by many at once over
HTTP alone, for the CPU that the API takes for each; and by many at once in each way, for a call's time.
Rule: what is compared is measured in one run, in turn, and told as medians of its parts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from progressor import Client, Namespace, Process, development_database
from progressor.deployment.loops import serving
from progressor.http import HttpClient

ROOT = Path(__file__).parents[1]
NS = "bench.counter"
_PATH = f"/v1/namespaces/{NS}/processes/{{}}/calls/add"
_PARTS, _AT_ONCE, _CONNECTIONS = 10, 16, 32

counters = Namespace(NS, state=int)


@counters.init
async def begin(process: Process[int]) -> None:
    process.state = 0


@counters.call
async def add(process: Process[int], args: int) -> int:
    process.state += args
    return process.state


class Bare:
    """HTTP on a socket, with nothing of a client's own."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str, path: str
    ) -> None:
        self._reader, self._writer, self._head, self._path = reader, writer, head, path

    async def call(self, process_id: str) -> None:
        body = b"1"
        path = self._path.format(process_id)
        # As HttpClient asks: with a key, and for a wait.
        key = f'Idempotency-Key: "{secrets.token_hex(12)}"\r\nPrefer: wait=30'
        self._writer.write(f"POST {path} {self._head}\r\n{key}\r\n\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await self._reader.readexactly(length)


@asynccontextmanager
async def bare(url: str, path: str = _PATH) -> AsyncIterator[Bare]:
    """A connection that stays, for calls of that path, whose braces stand for a process id."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nContent-Length: 1"
    try:
        yield Bare(reader, writer, head, path)
    finally:
        writer.close()
        await writer.wait_closed()


def spawn(
    stack: ExitStack, *command: str, dsn: str, **env: str
) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """A service, and what it says when it serves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "progressor", *command],
        cwd=ROOT,
        env={**os.environ, "PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_LOG_FORMAT": "json", **env},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if '"serving"' in line:
            # What it says from now on is read by nobody, and must not stop it.
            drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
            for end in (drain.wait, process.wait, process.terminate):
                stack.callback(end)
            return process, json.loads(line)
    raise RuntimeError(f"{command} did not start")


def cpu(pid: int) -> float:
    """The seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def timed(ask: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await ask()
    return (time.perf_counter() - began) * 1000


async def measure(dsn: str, url: str, api: int, *, calls: int, warm_up: int) -> Mapping[str, float]:
    """The medians, in milliseconds."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(dsn))
        over_http = await stack.enter_async_context(HttpClient(url))
        socket = await stack.enter_async_context(bare(url))
        run = secrets.token_hex(4)
        ids = {name: f"{run}-{name}" for name in ("client", "socket", "HttpClient")}
        for process_id in ids.values():
            await client.start(NS, process_id)
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "client": lambda: client.call(NS, ids["client"], "add", 1),
            "socket": lambda: socket.call(ids["socket"]),
            "HttpClient": lambda: over_http.call(NS, ids["HttpClient"], "add", 1),
        }
        for ask in ways.values():
            for _ in range(warm_up):
                await ask()
        parts: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_PARTS):
            took: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(calls // _PARTS):
                for name, ask in ways.items():
                    took[name].append(await timed(ask))
            for name, each in took.items():
                parts[name].append(statistics.median(each))
        found = {f"{name}, p50": statistics.median(each) for name, each in parts.items()}
        for name in ("socket", "HttpClient"):
            added = [one - other for one, other in zip(parts[name], parts["client"], strict=True)]
            found[f"{name}, added p50"] = statistics.median(added)
        return {
            **found,
            **await _cost(client, url, api, calls),
            **await _side_by_side(client, over_http, url, calls),
        }


async def _side_by_side(client: Client, over_http: HttpClient, url: str, calls: int) -> Mapping[str, float]:
    """How long a call takes if many ask at once, in each way, and how much longer than on bare sockets."""
    async with AsyncExitStack() as stack:
        run = secrets.token_hex(4)
        ids = [f"{run}-{number}" for number in range(_CONNECTIONS)]
        for process_id in ids:
            await client.start(NS, process_id)
        sockets = [await stack.enter_async_context(bare(url)) for _ in ids]
        ways: dict[str, Callable[[int], Awaitable[object]]] = {
            "sockets": lambda number: sockets[number].call(ids[number]),
            "HttpClient": lambda number: over_http.call(NS, ids[number], "add", 1),
            "client": lambda number: client.call(NS, ids[number], "add", 1),
        }
        times = max(1, calls // _PARTS // _CONNECTIONS)
        took: dict[str, list[float]] = {name: [] for name in ways}
        # The first part opens the connections.
        for part in range(_PARTS + 1):
            for name, ask in ways.items():
                spent = await timed(partial(_by_all, ask, times))
                took[name] += [spent / (times * _CONNECTIONS)] if part else []
    found = {}
    for name, each in took.items():
        ratios = [one / other for one, other in zip(each, took["sockets"], strict=True)]
        found[f"{name}, {_CONNECTIONS} at once, a call"] = statistics.median(each)
        found[f"{name}, {_CONNECTIONS} at once, times that of sockets"] = statistics.median(ratios)
    return found


async def _by_all(ask: Callable[[int], Awaitable[object]], times: int) -> None:
    async def repeated(number: int) -> None:
        for _ in range(times):
            await ask(number)

    await asyncio.gather(*map(repeated, range(_CONNECTIONS)))


async def _cost(client: Client, url: str, api: int, calls: int) -> Mapping[str, float]:
    """CPU of the API for each call: one at a time, and many at once."""
    found = {}
    for at_once in (1, _AT_ONCE):
        per_call = []
        async with AsyncExitStack() as stack:
            run = secrets.token_hex(4)
            ids = [f"{run}-{number}" for number in range(at_once)]
            for process_id in ids:
                await client.start(NS, process_id)
            sockets = [await stack.enter_async_context(bare(url)) for _ in ids]

            async def ask(socket: Bare, process_id: str) -> None:
                for _ in range(calls // _PARTS):
                    await socket.call(process_id)

            for _ in range(_PARTS):
                before = cpu(api)
                await asyncio.gather(*map(ask, sockets, ids))
                per_call.append((cpu(api) - before) * 1000 / (calls // _PARTS * at_once))
        found[f"CPU of the API for a call, {at_once} at once"] = statistics.median(per_call)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="how many of each kind")
    parser.add_argument("--log-level", default="info", help="of the API")
    parser.add_argument("--warm-up", type=int, default=200, help="how many of each kind before")
    given = parser.parse_args()
    with development_database() as dsn, ExitStack() as stack:
        spawn(stack, "worker", "benchmarks.over_http:counters", dsn=dsn)
        api, said = spawn(stack, "api", "--port", "0", dsn=dsn, PROGRESSOR_LOG_LEVEL=given.log_level)
        with serving() as runner:
            asked = measure(dsn, said["url"], api.pid, calls=given.calls, warm_up=given.warm_up)
            for name, value in runner.run(asked).items():
                print(f"{name}: {value:.2f}" + ("" if "times" in name else " ms"))


if __name__ == "__main__":
    main()
