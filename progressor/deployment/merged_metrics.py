"""What several OS processes count and show, as the metrics of one command.

Rule: what only grows (counters, histograms, summaries) is added up, with what the dead had counted, so that
it never goes down. Everything else is one child's, and gets the label `child`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from progressor.metrics import Family, Sample

Figures = Sequence[Family]

_GROWS = {"counter", "histogram", "summary"}
_Key = tuple[str, tuple[tuple[str, str], ...]]


def merged(counted: Iterable[Figures], shown: Mapping[int, Figures]) -> list[Family]:
    """Put together what only grows of `counted`, and all of `shown`, by the numbers of children."""
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
            # When the counting began.
            sums[key] = min(value, sums.get(key, value))
        else:
            sums[key] = sums.get(key, 0) + value


def read(figures: Any) -> Figures:
    """Make figures of what they became as JSON."""
    return [
        Family(name, text, kind, unit, [Sample(*each) for each in samples])
        for name, text, kind, unit, samples in figures
    ]
