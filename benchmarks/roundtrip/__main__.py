"""`python -m benchmarks.roundtrip`: 100,000 processes leave one database and enter another one, unchanged.

It fills a PostgreSQL through the API, exports with `progressor export` and imports into a second PostgreSQL
with `progressor import`. Both commands are killed by SIGKILL in the middle, again and again, and resumed.
Then every row of both sides is compared, and the target's worker fires the timers that are due.
Exit status 0: no difference; with `--planted`, 0 says that the damage was found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.retention import server
from benchmarks.roundtrip import commands, files
from benchmarks.roundtrip.commands import Runs
from benchmarks.roundtrip.filling import Asked, Filling
from benchmarks.roundtrip.firing import Firing
from benchmarks.roundtrip.planted import damage
from benchmarks.roundtrip.service import NAMESPACE, subscriptions
from benchmarks.roundtrip.tables import Sides
from progressor import Client, Engine, Namespace, Process
from progressor.storage.doctor import examine

_MOST_SHOWN = 50
_END = b'{"kind":"end"'
_MIB = 1 << 20
# Steps of somebody else in the target: numbers of tasks are others there from the beginning.
_STRANGER, _STRANGERS = "roundtrip.stranger", 23


@dataclass
class RoundTripReport:
    """All figures of a run, and what differs."""

    postgresql: str
    processes: int
    seed: int
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    commands: dict[str, Runs] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Note how long a part takes, and tell that it is done."""
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        print(f"{name}: {self.seconds[name]:,.1f} s", flush=True)


class RoundTrip:
    """One round trip between two databases, a method for each part."""

    def __init__(self, source: str, target: str, home: Path, options: argparse.Namespace) -> None:
        self._source, self._target, self._options = source, target, options
        self._random = random.Random(options.seed)
        self._file, self._second = home / "export.ndjson", home / "again.ndjson"
        self._answers: list[Asked] = []
        self._refusals = 0
        with psycopg.connect(source) as connection:
            version = str(connection.info.parameter_status("server_version"))
        self.report = RoundTripReport(version, options.processes, options.seed)

    def run(self) -> RoundTripReport:
        """Fill, export, import, compare, and let the timers fire."""
        report = self.report
        with report.timed("fill"):
            asyncio.run(self._fill())
        with report.timed("export"):
            self._export()
        with report.timed("import"):
            self._import()
        if self._options.planted:
            damage(self._target)
        with report.timed("compare"):
            self._compare()
        asyncio.run(self._fire())
        with report.timed("doctor"):
            report.differences += [
                f"doctor, {each.name}: {found.found}"
                for each in examine(self._target).invariants
                for found in each.findings
            ]
        return report

    async def _fill(self) -> None:
        """Make the processes of the source, and leave it paused, with no worker."""
        async with Engine(self._source, [subscriptions]) as engine:
            filling = Filling(engine.client, self._source, processes=self._options.processes)
            self.report.processes = await filling.run()
            self._answers = filling.answers
        await self._strange()

    async def _strange(self) -> None:
        """Make the target know the namespace, which is paused there, and have other processes."""
        stranger = Namespace(_STRANGER, state=int)
        stranger.init(_begin)
        async with Engine(self._target, [subscriptions, stranger]) as engine:
            for number in range(_STRANGERS):
                await engine.client.start(_STRANGER, f"stranger-{number}")
            await engine.client.pause(NAMESPACE, "until all is imported")

    def _export(self) -> None:
        """Export into a file, killed and resumed."""
        args = ("export", NAMESPACE, "--output", str(self._file))
        progress = _lines_in(self._file)
        self.report.commands["export"] = commands.kill_and_resume(
            self._source,
            args,
            (*args, "--resume"),
            progress=progress,
            kills=self._moments(),
            killed=self._refused,
        )
        self.report.counts["stopped exports, refused"] = self._refusals
        self.report.bytes = self._file.stat().st_size

    def _refused(self) -> None:
        """See that a file whose export was stopped is not taken for whole."""
        if not self._file.exists():
            return
        read = commands.run(self._target, "import", str(self._file), "--dry-run", allowed=(0, 2))
        # It may have died behind its last line.
        if f"{self.report.processes:,} processes are whole" not in read.said:
            self._refusals += 1
            if read.status != 2:
                self.report.differences.append(f"a stopped export is taken for whole: {read.said}")

    def _import(self) -> None:
        """Import the file, killed and repeated."""
        args = ("import", str(self._file), "--json")
        with closing(psycopg.connect(self._target, autocommit=True)) as database:
            runs = commands.kill_and_resume(
                self._target, args, args, progress=lambda: _imported(database), kills=self._moments()
            )
        self.report.commands["import"] = runs
        done = json.loads(runs.said)
        if done["imported"] + done["taken"] != self.report.processes:
            self.report.differences.append(f"import said {done}")
        self.report.counts["taken by the last import"] = done["taken"]

    def _moments(self) -> Sequence[int]:
        """Draw the numbers of done processes at which a command is killed."""
        return [self._random.randrange(self._options.processes) for _ in range(self._options.kills)]

    def _compare(self) -> None:
        """Compare both sides twice: by an export of the target, and by the rows of the tables."""
        args = ("export", NAMESPACE, "--output", str(self._second))
        self.report.commands["export, not killed"] = commands.run(self._target, *args)
        self.report.differences += files.differences(self._file, self._second)
        sides = Sides(self._source, self._target, NAMESPACE)
        with closing(sides):
            self.report.differences += sides.differences()
        self.report.rows = sides.rows

    async def _fire(self) -> None:
        """Ask for stored answers, then let a worker fire what is due, then repair what is broken."""
        report, firing = self.report, Firing(self._source, self._target)
        with closing(firing):
            with report.timed("repeat"):
                async with Client(self._target) as client:
                    report.counts["keys repeated"] = await firing.repeat(client, self._answers)
            with report.timed("fire"):
                async with Engine(self._target, [subscriptions]) as engine:
                    await engine.client.resume(NAMESPACE)
                    await firing.wait(timedelta(seconds=self._options.window))
                fired = firing.check()
            with report.timed("repair"):
                async with Engine(self._target, [subscriptions]) as engine:
                    report.counts["repaired"] = await firing.repair(engine.client)
                firing.check_repaired()
            report.counts.update({f"timers, {name}": count for name, count in fired._asdict().items()})
        report.differences += firing.findings


async def _begin(process: Process[int]) -> None:
    """Begin a stranger."""
    process.state = 0


def _lines_in(file: Path) -> Callable[[], int]:
    """Return a function that tells how many processes a growing file has; what it has seen counts."""
    seen = most = count = 0

    def look() -> int:
        nonlocal seen, most, count
        if not file.exists():
            return most
        with file.open("rb") as lines:
            # A resumed export cuts the file off first.
            if (size := lines.seek(0, 2)) < seen:
                seen, count = 0, 0
            lines.seek(seen)
            new = lines.read(size - seen)
        whole = new[: new.rfind(b"\n") + 1]
        seen, count = seen + len(whole), count + whole.count(_END)
        most = max(most, count)
        return most

    return look


def _imported(database: psycopg.Connection) -> int:
    """Return how many processes of the namespace are in the target."""
    ((count,),) = database.execute(
        "SELECT count(*) FROM progressor.processes JOIN progressor.namespaces USING (namespace_no) "
        "WHERE name = %s",
        [NAMESPACE],
    ).fetchall()
    return int(count)


def told(report: RoundTripReport) -> Iterator[str]:
    """Yield the report, line by line."""
    rows = sum(report.rows.values())
    yield f"PostgreSQL {report.postgresql}, {report.processes:,} processes, seed {report.seed}"
    yield f"{rows:,} rows: {', '.join(f'{count:,} {table}' for table, count in report.rows.items())}"
    yield f"{report.bytes / _MIB:,.1f} MiB of lines"
    for name, runs in report.commands.items():
        times = f"{runs.seconds:,.1f} s, of these {runs.cpu_seconds:,.1f} s of its CPU"
        rates = (
            f"{report.processes / runs.seconds:,.0f} processes a second, {rows / runs.seconds:,.0f} rows"
        )
        yield f"{name}: {runs.kills} kills, {times}; {rates}; peak RSS {runs.peak_mib:,.0f} MiB"
    yield ", ".join(f"{name}: {count:,}" for name, count in report.counts.items())
    yield from report.differences[:_MOST_SHOWN]
    yield f"differences: {len(report.differences):,}"


def _options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roundtrip", description=__doc__)
    parser.add_argument("--processes", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=4, help="of each command, at random moments")
    parser.add_argument("--seed", type=int, default=1, help="of these moments")
    parser.add_argument(
        "--window", type=float, default=60.0, help="seconds for which timers fall due beside the worker"
    )
    parser.add_argument(
        "--planted", action="store_true", help="damage the target first: status 0 if that is found"
    )
    parser.add_argument("--json", type=Path, help="write the report here")
    return parser.parse_args()


def main() -> int:
    """Run it, and write the report."""
    options = _options()
    # Handlers that fail are a part of it.
    logging.getLogger("progressor").setLevel(logging.CRITICAL)
    with server() as (source, home), server() as (target, _):
        report = RoundTrip(source, target, home, options).run()
    print("\n".join(told(report)))
    if options.json:
        facts: dict[str, Any] = asdict(report)
        options.json.write_text(json.dumps(facts, indent=1))
    return 0 if bool(report.differences) == options.planted else 1


if __name__ == "__main__":
    sys.exit(main())
