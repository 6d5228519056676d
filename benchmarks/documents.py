"""The results as a file, and as the tables that two pages of the documentation show between markers.

`explanation/performance.md` has ten rows beside the other systems, `reference/figures.md` everything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contestants import PEERS, Target
from progressor.bench.cases import OWN, BenchCase
from progressor.bench.measure import Figures
from progressor.bench.report import shown
from progressor.bench.samples import Results

SHORT, WHOLE = Path("explanation", "performance.md"), Path("reference", "figures.md")
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
_NAMES = {
    "dbos": "DBOS",
    "procrastinate": "Procrastinate",
    "pgqueuer": "PgQueuer",
    "absurd": "Absurd",
    "oban": "Oban",
    "pgbench": "pgbench -N",
}
_ROWS = {
    "chain-1": "timer steps, one process",
    "chain-200": "timer steps, 200 processes",
    "chain-1000": "timer steps, 1,000 processes",
    "start-1": "starts, one client",
    "start-32": "starts, 32 clients",
    "call-1": "calls, one client",
    "call-32": "calls, 32 clients",
    "call-32-elsewhere": "calls, 32 clients in another OS process",
    "call-32-one-process": "calls, 32 clients of one process",
    "timers-drain": "timers that are all due",
}


def as_json(results: Results, judged: Sequence[Target]) -> dict[str, Any]:
    """Everything, with what it must show."""
    return results.as_json() | {
        "targets": [{"ratio": t.says, "limit": t.bound, "measured": t.value, "met": t.met} for t in judged]
    }


def read(path: Path) -> Results:
    """The results of a file."""
    told = json.loads(path.read_text(encoding="utf-8"))
    cases = [
        BenchCase("", each["name"], each["workload"], each["params"], contestant=each["contestant"])
        for each in told["cases"]
    ]
    by_key = dict(zip((case.key for case in cases), told["cases"], strict=True))
    return Results(
        told["facts"],
        cases,
        {key: each["samples"] for key, each in by_key.items()},
        {key: each["failures"] for key, each in by_key.items() if each["failures"]},
    )


def update(docs: Path, results: Results, judged: Sequence[Target]) -> None:
    """Write the tables between the markers of both pages below this folder."""
    facts = _facts(results)
    _write(docs / SHORT, facts, _beside_others(results))
    _write(docs / WHOLE, facts, _figures(results), _targets(judged))


def _write(page: Path, *parts: str) -> None:
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the figures: {_BEGIN} … {_END}")
    text = "\n\n".join(parts)
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")


def _facts(results: Results) -> str:
    facts = results.facts
    peers = ", ".join(f"{_NAMES[name]} {version}" for name, version in facts.get("peers", {}).items())
    return (
        f"{facts['cores']} cores (load average {facts['load']} when it began), PostgreSQL "
        f"{facts['server_version']} (shared_buffers {facts['shared_buffers']}, "
        f"fsync {facts['fsync']}, synchronous_commit "
        f"{facts['synchronous_commit']}), Python {facts['python']}, {facts['machine']}"
        f"{'; ' + peers if peers else ''}. {_tree(facts)}Medians of {facts['repeats']} rounds"
        f"{' of ' + format(facts['seconds'], 'g') + ' s' if 'seconds' in facts else ''}."
    )


def _tree(facts: dict[str, Any]) -> str:
    return f"The tree of {facts['tree']}. " if "tree" in facts else ""


def _beside_others(results: Results) -> str:
    """The rates of a few cases, a column for each system."""
    lines = [
        _row(["what", "Progressor", *(_NAMES[peer] for peer in PEERS)]),
        _row(["---"] * (len(PEERS) + 2)),
    ]
    lines += [
        _row([says, *(_rate(results.median(f"{name} {system}")) for system in (OWN, *PEERS))])
        for name, says in _ROWS.items()
    ]
    return "\n".join(lines)


def _rate(median: Figures) -> str:
    told = [shown("rate", median.get("rate"))]
    if "p50_ms" in median:
        told.append(f"p50 {shown('p50_ms', median['p50_ms'])}")
    return ", ".join(told)


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
