"""The results as a file, and as the tables that `docs/explanation/performance.md` shows between markers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contestants import Target
from progressor.bench.cases import Case
from progressor.bench.samples import Results
from progressor.cli.bench import shown

_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_COLUMNS = {
    "rate": "rate",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "client_cpu_us": "CPU, Python",
    "server_cpu_us": "CPU, PostgreSQL",
    "wal_bytes": "WAL",
    "stored_bytes": "stored",
}
_NAMES = {"dbos": "DBOS", "procrastinate": "Procrastinate", "pgqueuer": "PgQueuer", "pgbench": "pgbench -N"}


def as_json(results: Results, judged: Sequence[Target]) -> dict[str, Any]:
    """Everything, with what it must show."""
    return results.as_json() | {
        "targets": [{"ratio": t.says, "limit": t.bound, "measured": t.value, "met": t.met} for t in judged]
    }


def read(path: Path) -> Results:
    """The results of a file."""
    told = json.loads(path.read_text(encoding="utf-8"))
    cases = [
        Case("", each["name"], each["workload"], each["params"], contestant=each["contestant"])
        for each in told["cases"]
    ]
    by_key = dict(zip((case.key for case in cases), told["cases"], strict=True))
    return Results(
        told["facts"],
        cases,
        {key: each["samples"] for key, each in by_key.items()},
        {key: each["failures"] for key, each in by_key.items() if each["failures"]},
    )


def update(page: Path, results: Results, judged: Sequence[Target]) -> None:
    """Write the tables between the markers of the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the figures: {_BEGIN} … {_END}")
    text = "\n\n".join((_facts(results), _figures(results), _targets(judged)))
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")


def _facts(results: Results) -> str:
    facts = results.facts
    peers = ", ".join(f"{_NAMES[name]} {version}" for name, version in facts.get("peers", {}).items())
    return (
        f"{facts['cores']} cores (load average {facts['load']} when it began), PostgreSQL "
        f"{facts['server_version']} (shared_buffers {facts['shared_buffers']}, "
        f"fsync {facts['fsync']}, synchronous_commit "
        f"{facts['synchronous_commit']}), Python {facts['python']}, {facts['machine']}"
        f"{'; ' + peers if peers else ''}. Medians of {facts['repeats']} rounds"
        f"{' of ' + format(facts['seconds'], 'g') + ' s' if 'seconds' in facts else ''}."
    )


def _figures(results: Results) -> str:
    lines = [_row(["case", "system", *_COLUMNS.values(), "also"]), _row(["---"] * (len(_COLUMNS) + 3))]
    for case in results.cases:
        median = results.median(case.key)
        others = [
            f"{name.replace('_', ' ')} {shown(name, value)}"
            for name, value in median.items()
            if name not in {*_COLUMNS, "us", "count"}
        ]
        figures = [shown(name, median.get(name)) for name in _COLUMNS]
        name = _NAMES.get(case.contestant, case.contestant)
        lines.append(_row([case.name, name, *figures, ", ".join(others)]))
    return "\n".join(lines)


def _targets(judged: Sequence[Target]) -> str:
    lines = [_row(["what it must show", "limit", "measured", ""]), _row(["---"] * 4)]
    lines += [
        _row([t.says, t.bound, f"{t.value:,.2f}", "met" if t.met else "missed"])
        for t in judged
        if t.value is not None
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
