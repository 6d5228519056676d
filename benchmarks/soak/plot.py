"""The samples as one SVG: a small chart for each group of series, time to the right."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.soak.samples import Sample

CHARTS: Sequence[tuple[str, Sequence[str]]] = (
    ("memory, MiB", ("engine memory, MiB", "client memory, MiB")),
    ("connections", ("connections", "all connections")),
    ("call, ms", ("call p50, ms", "call p99, ms")),
    ("start, ms", ("start p50, ms", "start p99, ms")),
    ("break and repair, ms", ("break p50, ms", "break p99, ms")),
    ("backlog and under way", ("backlog", "under way")),
    ("processes, MiB", ("processes table, MiB", "processes indexes, MiB")),
    ("schedule and running, MiB", ("schedule table, MiB", "schedule indexes, MiB", "running table, MiB")),
    ("tasks and events, MiB", ("tasks table, MiB", "tasks indexes, MiB", "events table, MiB")),
    (
        "dead rows",
        ("processes dead rows", "schedule dead rows", "running dead rows", "tasks dead rows"),
    ),
    ("live rows", ("processes live rows", "schedule live rows", "tasks live rows")),
    ("operations/s, and the machine's load", ("operations/s", "machine load")),
)
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")
_WIDTH, _HEIGHT, _COLUMNS = 420, 190, 3
_LEFT, _TOP, _RIGHT, _BOTTOM = 48, 40, 12, 22


def svg(samples: Sequence[Sample], *, title: str) -> str:
    """All charts in a grid."""
    rows = -(-len(CHARTS) // _COLUMNS)
    width, height = _WIDTH * _COLUMNS, _HEIGHT * rows + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<g font-family="sans-serif" font-size="11">',
        f'<text x="12" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for place, (name, series) in enumerate(CHARTS):
        x, y = place % _COLUMNS * _WIDTH, place // _COLUMNS * _HEIGHT + 30
        parts.append(f'<g transform="translate({x},{y})">{_chart(samples, name, series)}</g>')
    return "\n".join([*parts, "</g></svg>\n"])


def _chart(samples: Sequence[Sample], name: str, series: Sequence[str]) -> str:
    drawn = {each: [(s["seconds"] / 60, s[each]) for s in samples if each in s] for each in series}
    drawn = {each: points for each, points in drawn.items() if points}
    if not drawn:
        return ""
    end = max(max(minute for minute, _ in points) for points in drawn.values()) or 1
    top = (max(max(value for _, value in points) for points in drawn.values()) or 1) * 1.08
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    base = _TOP + plot_height
    parts = [f'<text x="{_LEFT}" y="14" font-weight="bold">{escape(name)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = base - share * plot_height
        parts += [
            f'<line x1="{_LEFT}" x2="{_LEFT + plot_width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>',
            f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{_short(top * share)}</text>',
        ]
    parts.append(f'<text x="{_LEFT + plot_width}" y="{_HEIGHT - 6}" text-anchor="end">{end:.0f} min</text>')
    legend = _LEFT
    for colour, (each, points) in zip(_COLOURS, drawn.items(), strict=False):
        line = " ".join(
            f"{_LEFT + minute / end * plot_width:.1f},{base - value / top * plot_height:.1f}"
            for minute, value in points
        )
        label = each.removesuffix(", ms").removesuffix(", MiB")
        parts += [
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.2"/>',
            f'<text x="{legend}" y="30" fill="{colour}">{escape(label)}</text>',
        ]
        legend += 7 * len(label) + 10
    return "".join(parts)


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
