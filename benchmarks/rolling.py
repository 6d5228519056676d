"""`python -m benchmarks.rolling --processes 1000`: everything is restarted while it is used.

Two workers, two APIs, a scanner and a zombie collector are OS processes of their own, on one PostgreSQL.
Over HTTP processes are started and called, while workers and APIs are replaced one after the other, and the
scanner is killed. Exit status 0: every request was answered, none was done twice, nobody passed for dead.
Rule: who asks does as a good caller does: it asks again, elsewhere, with the same key.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg

from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.storage import migrations
from progressor.storage.doctor import examine

ROOT = Path(__file__).parents[1]
_APP_FOLDER = ROOT / "deploy/example"
_NS = "shop.order"
_AMOUNT = 3
_PATIENCE = 60.0
# What asking again mends: nobody listens there any more, or not yet.
_GONE = (httpx.TransportError,)


@dataclass(frozen=True)
class Service:
    """One OS process that serves."""

    process: asyncio.subprocess.Process
    health: str
    url: str


@dataclass
class Result:
    """What was seen. `calls` are the seconds from the first try to the answer."""

    calls: list[float] = field(default_factory=list)
    tries: int = 0
    requests: int = 0
    rolled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def report(self) -> str:
        p50, p99 = (statistics.quantiles(self.calls, n=100)[at] * 1000 for at in (49, 98))
        lines = [
            f"{self.requests} requests over HTTP, of which {self.tries - self.requests} were asked again.",
            f"Calls: p50 {p50:.1f} ms, p99 {p99:.1f} ms, the longest {max(self.calls) * 1000:.1f} ms.",
            f"Meanwhile: {', '.join(self.rolled)}.",
            *(self.wrong or ["Every request was answered, none was done twice, nobody passed for dead."]),
        ]
        return "\n".join(lines) + "\n"


class Fleet:
    """The services, as OS processes."""

    def __init__(self, dsn: str, variables: Mapping[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PROGRESSOR_")}
        self._env = {**clean, "PYTHONPATH": str(ROOT), "PROGRESSOR_DATABASE_URL": dsn, **variables}
        self._running: list[Service] = []

    async def start(self, *words: str) -> Service:
        """Start one, and return when it is ready."""
        metrics, port = _free_port(), _free_port()
        more = ["--port", str(port)] if words[0] == "api" else []
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *["-m", "progressor", *words, *more, "--metrics-port", str(metrics), "--log-level", "warning"],
            cwd=_APP_FOLDER,
            env=self._env,
        )
        service = Service(process, f"http://127.0.0.1:{metrics}/health/ready", f"http://127.0.0.1:{port}")
        self._running.append(service)
        async with httpx.AsyncClient() as client, asyncio.timeout(_PATIENCE):
            while not await _is_ready(client, service):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
        return service

    async def stop(self, service: Service, how: signal.Signals = signal.SIGTERM) -> None:
        """Tell it to stop, and wait for its end."""
        service.process.send_signal(how)
        status = await asyncio.wait_for(service.process.wait(), _PATIENCE)
        self._running.remove(service)
        if how is signal.SIGTERM and status != 0:
            raise RuntimeError(f"a service ended with {status}")

    async def stop_all(self) -> None:
        """End all at once, whatever they do."""
        for service in self._running:
            service.process.kill()
            await service.process.wait()


async def _is_ready(client: httpx.AsyncClient, service: Service) -> bool:
    if service.process.returncode is not None:
        raise RuntimeError(f"a service ended with {service.process.returncode} before it was ready")
    try:
        return (await client.get(service.health)).is_success
    except httpx.TransportError:
        return False


class Callers:
    """Start and call processes, by whatever API is in the balance."""

    def __init__(self, processes: int, at_once: int, result: Result) -> None:
        self.balance: list[str] = []
        self.result = result
        self._ids = map("p{}".format, itertools.count())
        self._processes, self._at_once = processes, at_once
        self.begun: list[str] = []

    async def run(self, rolled: asyncio.Event) -> None:
        """Until so many processes have been called, and all has been rolled."""
        async with httpx.AsyncClient(timeout=_PATIENCE) as client, asyncio.TaskGroup() as callers:
            for _ in range(self._at_once):
                callers.create_task(self._call_one_after_the_other(client, rolled))

    async def _call_one_after_the_other(self, client: httpx.AsyncClient, rolled: asyncio.Event) -> None:
        while len(self.begun) < self._processes or not rolled.is_set():
            self.begun.append(process_id := next(self._ids))
            await self._ask(client, f"/{process_id}", {"item": "tea"}, f"start {process_id}")
            began = time.monotonic()
            answer = await self._ask(
                client, f"/{process_id}/calls/pay", {"amount": _AMOUNT}, f"pay {process_id}"
            )
            self.result.calls.append(time.monotonic() - began)
            if answer != _AMOUNT:
                self.result.wrong.append(f"{process_id} answered {answer}")

    async def _ask(self, client: httpx.AsyncClient, path: str, body: object, key: str) -> object:
        self.result.requests += 1
        async with asyncio.timeout(_PATIENCE):
            while True:
                self.result.tries += 1
                url = self.balance[self.result.tries % len(self.balance)]
                try:
                    answer = await client.post(
                        f"{url}/v1/namespaces/{_NS}/processes{path}",
                        json=body,
                        headers={"Idempotency-Key": key.replace(" ", "-")},
                    )
                except _GONE:
                    continue
                if answer.status_code == httpx.codes.ACCEPTED:
                    # It drains, or has waited for long enough: the same key attaches to what goes on.
                    continue
                if answer.is_success:
                    return answer.json()
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    self.result.wrong.append(f"{key}: {answer.status_code} {answer.text}")
                    return None


async def roll(
    dsn: str, processes: int, *, at_once: int, variables: Mapping[str, str] | None = None
) -> Result:
    """Use everything while it is restarted; what was seen."""
    result, rolled = Result(), asyncio.Event()
    callers = Callers(processes, at_once, result)
    async with _fleet(dsn, variables or {}) as fleet:
        worker = ("worker", "shop:orders", "--no-scanner", "--no-zombie-collector")
        first = [worker, worker, ("api",), ("api",), ("scanner",), ("zombie-collector",)]
        *started, scanner, _ = await asyncio.gather(*(fleet.start(*words) for words in first))
        workers, apis = started[:2], started[2:]
        callers.balance = [api.url for api in apis]
        async with asyncio.TaskGroup() as both:
            both.create_task(callers.run(rolled))
            for number, old in enumerate(workers, 1):
                workers[number - 1] = await fleet.start(*worker)
                await fleet.stop(old)
                result.rolled.append(f"worker {number} replaced")
            await fleet.stop(scanner, signal.SIGKILL)
            result.rolled.append("scanner killed")
            for number, old in enumerate(apis, 1):
                new = await fleet.start("api")
                callers.balance = [new.url if url == old.url else url for url in callers.balance]
                await fleet.stop(old)
                result.rolled.append(f"API {number} replaced")
            await fleet.start("scanner")
            rolled.set()
    result.wrong += _wrong_in(dsn, callers.begun)
    return result


@asynccontextmanager
async def _fleet(dsn: str, variables: Mapping[str, str]) -> AsyncIterator[Fleet]:
    fleet = Fleet(dsn, variables)
    try:
        yield fleet
    finally:
        await fleet.stop_all()


def _wrong_in(dsn: str, begun: list[str]) -> list[str]:
    """What the tables say: each process was started and paid once, at the first attempt."""
    with psycopg.connect(dsn) as connection:
        paid = connection.execute(
            "SELECT process_id, status::text, last_event_id FROM progressor.v_processes"
        ).fetchall()
        again = connection.execute(
            "SELECT process_id, task_type::text, error FROM progressor.v_tasks"
            " WHERE attempts_count > 0 OR status = 'error'"
        ).fetchall()
    expected = {(process_id, "running", 1) for process_id in begun}
    wrong = [f"not as it should be: {each}" for each in {*paid} ^ expected]
    wrong += [f"tried again: {each}" for each in again]
    return wrong if examine(dsn).is_clean else [*wrong, "the doctor is not content"]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolling", description=__doc__)
    parser.add_argument("--processes", type=int, default=1000, help="each is started, and called once")
    parser.add_argument("--at-once", type=int, default=16, help="how many callers there are")
    parser.add_argument("--report", type=Path, help="write what was seen here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="progressor-rolling-") as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder) / "postgres", bin_dir=Settings().postgres_bin_dir) as dsn:
            migrations.upgrade(dsn)
            result = asyncio.run(roll(dsn, arguments.processes, at_once=arguments.at_once))
    print(result.report(), end="")
    if arguments.report is not None:
        arguments.report.write_text(result.report(), encoding="utf-8")
    sys.exit(bool(result.wrong))


if __name__ == "__main__":
    main()
