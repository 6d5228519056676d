"""The metrics of several OS processes, merged into those of one command.

Rule: counters, histograms and summaries are added up, with the last ones of children that have ended, so
that a sum never goes down. Every other metric belongs to one child, and gets the label `child`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from progressor.metrics import Family, Sample

Figures = Sequence[Family]

_GROWS = {"counter", "histogram", "summary"}
_Key = tuple[str, tuple[tuple[str, str], ...]]


def merged(counted: Iterable[Figures], shown: Mapping[int, Figures]) -> list[Family]:
    """Merge the growing metrics of `counted` and all metrics of `shown`, by the numbers of children."""
    whole: dict[str, tuple[Family, dict[_Key, float]]] = {}
    for figures in (*counted, *shown.values()):
        for family in figures:
            if family.kind in _GROWS:
                _, sums = whole.setdefault(family.name, (family, {}))
                _add(family.samples, sums)
    for child, figures in shown.items():
        for family in figures:
            if family.kind not in _GROWS:
                _, own = whole.setdefault(family.name, (family, {}))
                _add(
                    [each._replace(labels=each.labels | {"child": str(child)}) for each in family.samples],
                    own,
                )
    return [
        family._replace(
            samples=[Sample(name, dict(labels), value) for (name, labels), value in sums.items()]
        )
        for family, sums in whole.values()
    ]


def _add(samples: Iterable[Sample], sums: dict[_Key, float]) -> None:
    for name, labels, value in samples:
        key = name, tuple(labels.items())
        if name.endswith("_created"):
            # The time at which the counting began: the earliest holds.
            sums[key] = min(value, sums.get(key, value))
        else:
            sums[key] = sums.get(key, 0) + value


def read(figures: Any) -> Figures:
    """Return figures from their JSON form."""
    return [
        Family(name, text, kind, unit, [Sample(*each) for each in samples])
        for name, text, kind, unit, samples in figures
    ]
