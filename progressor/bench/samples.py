"""Samples: cases run in turn, each in an OS process and on a database of its own."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from progressor.bench.cases import BenchCase
from progressor.bench.databases import Server
from progressor.bench.measure import Figures

Ended = Callable[[BenchCase, "Figures | str"], None]

_PATIENCE = 900.0


@dataclass(frozen=True, slots=True)
class Results:
    """All samples of a run, by case, in the order in which they were taken."""

    facts: dict[str, Any]
    cases: list[BenchCase]
    samples: dict[str, list[Figures]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    def median(self, key: str) -> Figures:
        """Return the median of each figure of one case; empty if it has no sample."""
        taken = self.samples.get(key, [])
        names = taken[0] if taken else ()
        return {name: statistics.median(each[name] for each in taken if name in each) for name in names}

    def as_json(self) -> dict[str, Any]:
        """Return facts, cases, medians, samples and failures, for a file."""
        return {
            "facts": self.facts,
            "cases": [
                {
                    "name": case.name,
                    "contestant": case.contestant,
                    "workload": case.workload,
                    "params": dict(case.params),
                    "median": self.median(case.key),
                    "samples": self.samples.get(case.key, []),
                    "failures": self.failures.get(case.key, []),
                }
                for case in self.cases
            ],
        }


def run(
    server: Server,
    cases: Sequence[BenchCase],
    *,
    repeats: int,
    began: Callable[[BenchCase], None],
    ended: Ended,
) -> Results:
    """Run all cases in rounds, so that each meets the machine at its best and at its worst."""
    results = Results({**server.facts(), "repeats": repeats}, list(cases))
    for _ in range(repeats):
        for case in cases:
            began(case)
            try:
                with server.database(case.database) as dsn:
                    figures = sample(case, dsn)
            except (SampleFailed, subprocess.TimeoutExpired) as error:
                results.failures.setdefault(case.key, []).append(str(error))
                ended(case, str(error))
            else:
                results.samples.setdefault(case.key, []).append(figures)
                ended(case, figures)
    return results


class SampleFailed(Exception):
    """A case that could not be measured, with the last line of its output."""


def sample(case: BenchCase, dsn: str) -> Figures:
    """Let a child process measure one case; SampleFailed, or TimeoutExpired after 15 minutes."""
    command = case.command or (sys.executable, "-m", "progressor.bench")
    job = {"workload": case.workload, "dsn": dsn, "params": dict(case.params)}
    done = subprocess.run(  # noqa: S603 - a module of ours
        command,
        input=json.dumps(job) + "\n",
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    answer = _last_line(done.stdout.splitlines())
    if done.returncode or answer is None:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise SampleFailed(output[-1] if output else f"status {done.returncode}")
    return answer


def _last_line(lines: Iterable[str]) -> Figures | None:
    answer = None
    for line in lines:
        # Some contestants print other lines to stdout.
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
    return answer if isinstance(answer, dict) else None
