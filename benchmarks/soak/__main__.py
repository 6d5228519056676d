"""`python -m benchmarks.soak --minutes 30 --rate 150 --json soak.json --plot soak.svg --report soak.md`.

Exit status 0: flat where it should be flat, nothing failed, and the doctor is content.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.soak import plot, samples
from benchmarks.soak.load import MIX, Load
from benchmarks.soak.verdict import Line, judge
from progressor import Client
from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.storage import migrations
from progressor.storage.doctor import examine

_WARM_UP_SHARE, _LONGEST_WARM_UP = 0.2, 300.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=150, help="operations a second")
    parser.add_argument("--interval", type=float, default=5, help="seconds between two samples")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="nobody else is here: judge latencies too")
    parser.add_argument("--json", type=Path, help="write samples and verdict here")
    parser.add_argument("--plot", type=Path, help="write the charts here, as SVG")
    parser.add_argument("--report", type=Path, help="write the verdict here, as Markdown")
    return parser.parse_args()


async def _sample(
    load: Load, database: psycopg.Connection, engine: asyncio.subprocess.Process, interval: float
) -> list[samples.Sample]:
    """Until cancelled, then what there is."""
    loop = asyncio.get_running_loop()
    began, taken, before = loop.time(), [], 0
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(interval)
            one = await asyncio.to_thread(samples.of_database, database)
            done = sum(load.done.values())
            taken.append(
                {
                    "seconds": loop.time() - began,
                    "engine memory, MiB": samples.memory_mib(engine.pid),
                    "client memory, MiB": samples.memory_mib("self"),
                    "under way": load.under_way,
                    "machine load": os.getloadavg()[0],
                    "operations/s": (done - before) / interval,
                    **one,
                    **samples.of_latencies(load.take_latencies()),
                }
            )
            before = done
    return taken


async def _run(options: argparse.Namespace, dsn: str) -> dict[str, Any]:
    engine = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.soak.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if engine.stdin is None or engine.stdout is None:
        raise RuntimeError("a worker without pipes")
    engine.stdin.write(dsn.encode() + b"\n")
    await engine.stdout.readline()
    try:
        with psycopg.connect(dsn, autocommit=True, application_name="soak") as database:
            async with Client(dsn) as client:
                load = Load(client, rate=options.rate, seed=options.seed)
                sampling = asyncio.create_task(_sample(load, database, engine, options.interval))
                await load.run(options.minutes * 60)
                sampling.cancel()
                taken = await sampling
    finally:
        engine.stdin.close()
        await engine.wait()
    return {"samples": taken, "done": dict(load.done), "errors": dict(load.errors)}


def _markdown(result: dict[str, Any], lines: Sequence[Line], options: argparse.Namespace) -> str:
    done = ", ".join(f"{count:,} {verb}" for verb, count in sorted(result["done"].items()))
    text = [
        f"# Soak: {options.minutes:g} minutes at {options.rate:g} operations/s\n",
        f"Mix per hundred: {', '.join(f'{share} {verb}' for verb, share in MIX.items())}. Done: {done}.",
        f"Unexpected errors: {sum(result['errors'].values())}. Doctor: {result['doctor'] or 'clean'}.\n",
        "| series, after the warm-up | median | first third | last third | growth | allowed | |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for line in lines:
        verdict = {True: "flat", False: "**GROWS**", None: "may grow"}[line.flat]
        text.append(
            f"| {line.series} | {line.median:.2f} | {line.first:.2f} | {line.last:.2f} "
            f"| {line.growth:+.2f} | {line.allowed:.2f} | {verdict} |"
        )
    text += [f"- {count} times {error}" for error, count in result["errors"].items()]
    return "\n".join(text) + "\n"


def main() -> int:
    """Run it, write the reports, and say whether all is flat."""
    options = _arguments()
    with tempfile.TemporaryDirectory(prefix="prg-soak-", dir="/tmp", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        with EmbeddedPostgres(Path(home) / "postgres", bin_dir=Settings().postgres_bin_dir) as dsn:
            migrations.upgrade(dsn)
            result = asyncio.run(_run(options, dsn))
            findings = [each for each in examine(dsn).invariants if not each.holds]
    result["doctor"] = {each.name: [f.found for f in each.findings] for each in findings}
    warm_up = min(_LONGEST_WARM_UP, options.minutes * 60 * _WARM_UP_SHARE)
    lines = judge(result["samples"], warm_up=warm_up, alone=options.alone)
    result["verdict"] = [line.as_dict() for line in lines]
    result["machine"] = {"cores": len(os.sched_getaffinity(0)), "rate": options.rate, "warm_up": warm_up}
    report = _markdown(result, lines, options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    if options.plot:
        title = f"Soak: {options.minutes:g} minutes at {options.rate:g} operations/s"
        options.plot.write_text(plot.svg(result["samples"], title=title))
    if options.report:
        options.report.write_text(report)
    print(report)
    return (
        0 if all(line.flat is not False for line in lines) and not result["errors"] and not findings else 1
    )


if __name__ == "__main__":
    sys.exit(main())
