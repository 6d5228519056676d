"""`python -m benchmarks.instructions BEFORE AFTER`: what a step takes in several trees, in instructions.

Engine and caller are one OS process, whose instructions valgrind counts; those of PostgreSQL are not
counted. Rule: a case is run with a few steps and with many, and the difference is divided by the steps, so
that imports and start do not count. Under valgrind Python is slow and PostgreSQL is not: batches are
smaller than in use.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import psycopg
from psycopg import sql

# What older trees have too: this file is run with each of them.
from progressor import Engine, Namespace, Process
from progressor.embedded import EmbeddedPostgres

_AT_ONCE = timedelta()
_WARM = 64
_SUMMARY = "summary: "
_VALGRIND = "valgrind"

_bench = Namespace("instructions", state=int)
_ended: dict[str, asyncio.Future[None]] = {}


@_bench.init
async def begin(process: Process[int], steps: int) -> None:
    """Begin with a number."""
    process.state = steps


@_bench.call
async def add(process: Process[int], n: int) -> int:
    """Add a number, keep an event and answer."""
    process.state += n
    process.emit("added", n=n)
    return process.state


@_bench.call
async def arm(process: Process[int], steps: int) -> None:
    """Begin a chain of so many timers."""
    process.state = steps
    process.set_timer(after=_AT_ONCE)


@_bench.timeout
async def tick(process: Process[int]) -> None:
    """Do a step of a chain."""
    process.state -= 1
    if process.state > 0:
        process.set_timer(after=_AT_ONCE)
    else:
        _ended[process.process_id].set_result(None)


async def _calls(engine: Engine, process_id: str, steps: int) -> None:
    for _ in range(steps):
        await engine.client.call(_bench.name, process_id, "add", 1)


async def _starts(engine: Engine, process_id: str, steps: int) -> None:
    for number in range(steps):
        await engine.client.start(_bench.name, f"{process_id}/{steps}/{number}", 1)


async def _chain(engine: Engine, process_id: str, steps: int) -> None:
    _ended[process_id] = asyncio.get_running_loop().create_future()
    await engine.client.call(_bench.name, process_id, "arm", steps)
    await _ended[process_id]


_Flow = Callable[[Engine, str, int], Awaitable[None]]
_CASES: Mapping[str, tuple[_Flow, int, int]] = MappingProxyType(
    {
        "chain-20": (_chain, 20, 2000),
        "start-32": (_starts, 32, 1600),
        "call-32": (_calls, 32, 3200),
        "call-1": (_calls, 1, 400),
    }
)
"""The cases: what each of so many callers does, and the steps of all of them."""


async def run(dsn: str, case: str, steps: int) -> None:
    """Run a case once, after a few steps that come in any case."""
    flow, callers, _ = _CASES[case]
    names = [f"{os.getpid()}-{number}" for number in range(callers)]
    async with Engine(dsn, [_bench]) as engine:
        for name in names:
            await engine.client.start(_bench.name, name, 0)
        for many in (max(1, _WARM // callers), steps // callers):
            if many:
                await asyncio.gather(*(flow(engine, name, many) for name in names))


@contextmanager
def _databases(trees: list[Path]) -> Iterator[list[tuple[Path, str]]]:
    with tempfile.TemporaryDirectory(prefix="prg-instructions-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        with EmbeddedPostgres(Path(home) / "postgres") as dsn:
            made = []
            for number, tree in enumerate(trees):
                name = f"tree_{number}"
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
                made.append((tree, psycopg.conninfo.make_conninfo(dsn, dbname=name)))
                _python(tree, ["-m", "progressor", "migrate"], PROGRESSOR_DATABASE_URL=made[-1][1])
            yield made


def _python(tree: Path, args: list[str], *, under: tuple[str, ...] = (), **around: str) -> None:
    environment = {**os.environ, **around, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    command = [*under, sys.executable, *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tree}: {' '.join(args[:2])} failed\n{done.stderr[-2000:]}")


def counted(tree: Path, dsn: str, case: str, steps: int) -> int:
    """Return the instructions of an OS process that runs a case."""
    with tempfile.NamedTemporaryFile(prefix="prg-instructions-") as out:
        tool = (_VALGRIND, "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out.name}")
        _python(tree, [__file__, "--run", dsn, case, str(steps)], under=tool)
        lines = Path(out.name).read_text().splitlines()
    return next(int(line.removeprefix(_SUMMARY)) for line in lines if line.startswith(_SUMMARY))


def per_step(tree: Path, dsn: str, case: str) -> float:
    """Return the instructions of a step of a case."""
    steps = _CASES[case][2]
    return (counted(tree, dsn, case, steps) - counted(tree, dsn, case, 0)) / steps


def compare(trees: list[Path], cases: list[str], rounds: int) -> None:
    """Print the instructions of a step of each case in each tree, and the ratios to the first."""
    print(f"| case | {' | '.join(map(str, trees))} | ratio |\n|---|{'--:|' * (len(trees) + 1)}", flush=True)
    with _databases(trees) as made, ThreadPoolExecutor(os.cpu_count()) as threads:
        try:
            for case in cases:
                jobs = [[threads.submit(per_step, *each, case) for each in made] for _ in range(rounds)]
                found = [statistics.median(job.result() for job in of) for of in zip(*jobs, strict=True)]
                ratios = ", ".join(f"{each / found[0]:.3f}" for each in found[1:])
                print(f"| {case} | {' | '.join(f'{each:,.0f}' for each in found)} | {ratios} |", flush=True)
        finally:
            threads.shutdown(cancel_futures=True)


def main() -> None:
    """Read the command line, and run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("trees", nargs="*", type=Path, help="folders of this project, the oldest first")
    parser.add_argument("--case", action="append", choices=_CASES, help="of these cases alone")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        dsn, case, steps = options.run
        asyncio.run(run(dsn, case, int(steps)))
    elif not options.trees:
        parser.error("name the trees to compare: python -m benchmarks.instructions ../before .")
    elif shutil.which(_VALGRIND) is None:
        parser.error("valgrind is missing: on Debian, apt-get install valgrind")
    else:
        compare([each.resolve() for each in options.trees], options.case or list(_CASES), options.rounds)


if __name__ == "__main__":
    main()
