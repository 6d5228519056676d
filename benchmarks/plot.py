"""`python -m benchmarks.plot FILE`: draws the results told on stdin; run by the peers' Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

_OWN, _OTHER, _BOUND = "#1f5fa8", "#b9bec6", "#8a6d1d"
_BOUNDS = ("ceiling", "pgbench", "naive")
_PANELS = (
    ("chain-200", "rate", "200 chains: steps a second"),
    ("chain-1", "rate", "1 chain: steps a second"),
    ("start-32", "rate", "32 clients: starts a second"),
    ("start-1", "p50_ms", "1 client: start, p50 in ms (less is better)"),
)


def _panel(axes: Any, cases: list[dict[str, Any]], figure: str, title: str) -> None:
    taken = [(each["contestant"], each) for each in cases if each["median"].get(figure)]
    names = [name for name, _ in taken][::-1]
    values = [each["median"][figure] for _, each in taken][::-1]
    low = [
        v - min(s[figure] for s in each["samples"])
        for v, (_, each) in zip(values, taken[::-1], strict=True)
    ]
    high = [
        max(s[figure] for s in each["samples"]) - v
        for v, (_, each) in zip(values, taken[::-1], strict=True)
    ]
    colours = [
        _OWN if name == "progressor" else _BOUND if name.startswith(_BOUNDS) else _OTHER for name in names
    ]
    bars = axes.barh(names, values, color=colours, xerr=[low, high], ecolor="#555555", capsize=2)
    labels = [f"{value:,.0f}" if figure == "rate" else f"{value:.2f}" for value in values]
    axes.bar_label(bars, labels, padding=6, fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.margins(x=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def main() -> None:
    """One figure of four panels; those without samples are left out."""
    results = json.load(sys.stdin)
    mpl.rcParams["svg.hashsalt"] = "progressor"  # the same picture of the same samples
    panels = [
        (found, figure, title)
        for name, figure, title in _PANELS
        if (found := [case for case in results["cases"] if case["name"] == name and case["samples"]])
    ]
    if not panels:
        raise SystemExit("there is nothing to draw: measure chain and start")
    rows = -(-len(panels) // 2)
    figure, grid = plt.subplots(rows, 2, figsize=(11, 3.0 * rows), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, (cases, name, title) in zip(grid.flat, panels, strict=False):
        _panel(axes, cases, name, title)
    facts = results["facts"]
    figure.text(
        0.01,
        0.01,
        f"{facts['cores']} cores, PostgreSQL {facts['server_version']}, durable commits; "
        f"medians of {facts['repeats']}, lines from least to most",
        fontsize=8,
        color="#555555",
    )
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    path = Path(sys.argv[1])
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
