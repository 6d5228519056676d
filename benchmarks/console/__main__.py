"""`python -m benchmarks.console`: how long the pages of the console take, over a million processes.

It fills a database of its own, asks each page again and again, in one OS process with the console, and
prints p50 and p95. `--combinations` asks each combination of the filters of Processes instead, and
prints the slowest. Ten million tasks and as many events need 12 GB of disk for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import httpx
import psycopg

from benchmarks.console.filling import Sizes, fill
from benchmarks.console.pages import COMBINED, PAGES, console_of, following_of, last_of, seen_parts
from progressor import Client
from progressor.bench.measure import Meter
from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.storage import migrations

# Milliseconds: what a page may take, in 95 of 100 cases.
_BOUND = 300.0
_SLOWEST = 25


class Asked(NamedTuple):
    """The times of one page, and the CPU that console and PostgreSQL took for it; in milliseconds."""

    name: str
    times: list[float]
    cpu: float = 0.0
    server_cpu: float = 0.0

    @property
    def p50(self) -> float:
        return statistics.median(self.times)

    @property
    def p95(self) -> float:
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


@contextmanager
def database(options: argparse.Namespace) -> Iterator[str]:
    """Yield the DSN of a filled database: one in a folder that is kept, or one that goes afterwards."""
    sizes = Sizes(options.processes, options.tasks)
    with tempfile.TemporaryDirectory(prefix="prg-console-", ignore_cleanup_errors=True) as own:
        home = Path(options.data or own).resolve()
        home.mkdir(exist_ok=True)
        home.chmod(0o755)  # as root, the server is another user
        server = EmbeddedPostgres(home / "postgres", bin_dir=Settings().postgres_bin_dir)
        is_begun = server.is_begun
        try:
            dsn = server.start()
            if not is_begun:
                migrations.upgrade(dsn)
                fill(dsn, sizes)
            with psycopg.connect(dsn) as connection:
                print(f"PostgreSQL {connection.info.parameter_status('server_version')}", flush=True)
            yield dsn
        finally:
            server.stop()


async def ask(http: httpx.AsyncClient, path: str) -> tuple[float, str]:
    """Return the milliseconds that a page took, and its text."""
    began = time.perf_counter()
    answer = await http.get(path)
    took = (time.perf_counter() - began) * 1000
    if answer.status_code != httpx.codes.OK:
        raise RuntimeError(f"{path}: {answer.status_code}")
    return took, answer.text


async def measure(dsn: str, options: argparse.Namespace) -> list[Asked]:
    """Ask each page so many times, after two that do not count."""
    found = []
    async with Client(dsn) as client:
        for whose, patterns in (("", ("*",)), (", seen in part", seen_parts())):
            http = console_of(client, patterns)
            for page in PAGES:
                if patterns != ("*",) and page.needs_all:
                    continue
                if options.only and options.only not in page.name:
                    continue
                path = await last_of(http, page)
                for _ in range(2):
                    await ask(http, path)
                async with Meter(dsn) as meter:
                    times = [(await ask(http, path))[0] for _ in range(options.requests)]
                cost = meter.per(options.requests)
                cpu = [cost.get(f"{who}_cpu_us", 0.0) / 1000 for who in ("client", "server")]
                found.append(Asked(page.name + whose, times, *cpu))
                print(".", end="", flush=True)
            await http.aclose()
    return found


async def combine(dsn: str, options: argparse.Namespace) -> list[Asked]:
    """Ask each combination of filters of Processes, and the page behind each, the slowest first."""
    found = []
    async with Client(dsn) as client:
        for whose, patterns in (("", ("*",)), (" (seen in part)", seen_parts())):
            http = console_of(client, patterns)
            for values in product(*COMBINED.values()):
                stated = {name: value for name, value in zip(COMBINED, values, strict=True) if value}
                if options.only and options.only not in str(stated):
                    continue
                path = f"processes?{urlencode(stated)}"
                for pages in (1, 2, 3):
                    times = [await ask(http, path) for _ in range(options.requests)]
                    found.append(Asked(f"{stated} {pages}{whose}", [each for each, _ in times]))
                    following = following_of(times[-1][1], path)
                    if following is None:
                        break
                    path = following
            await http.aclose()
    print(f"{len(found)} pages", flush=True)
    return sorted(found, key=lambda each: -each.p95)[:_SLOWEST]


def tell(found: list[Asked]) -> bool:
    """Print the table; return whether all pages are within their bound."""
    print("\n| page | p50, ms | p95, ms | CPU, console | CPU, PostgreSQL |\n|---|--:|--:|--:|--:|")
    for each in found:
        costs = (each.p50, each.p95, each.cpu, each.server_cpu)
        print(f"| {each.name} | {' | '.join(f'{cost:,.0f}' for cost in costs)} |")
    slow = [each.name for each in found if each.p95 >= _BOUND]
    print(f"slower than {_BOUND:g} ms: {', '.join(slow)}" if slow else f"all within {_BOUND:g} ms")
    return not slow


def main() -> int:
    """Read the command line, and run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--processes", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=10, help="of each process, and as many events")
    parser.add_argument("--requests", type=int, default=40, help="of each page")
    parser.add_argument("--only", help="pages whose name contains this")
    parser.add_argument("--combinations", action="store_true", help="each combination of filters")
    parser.add_argument("--data", help="a folder in which the database is kept for the next run")
    options = parser.parse_args()
    with database(options) as dsn:
        return 0 if tell(asyncio.run((combine if options.combinations else measure)(dsn, options))) else 1


if __name__ == "__main__":
    sys.exit(main())
