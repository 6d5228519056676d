"""Names that somebody may have meant by one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_MOST_SHOWN = 10
# Each costs some microseconds, and callers may send any number of names.
_MOST_COMPARED = 300


def nearest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the known names that are like this one, the nearest first."""
    return tuple(get_close_matches(name, list(islice(known, _MOST_COMPARED)), n=_MOST_COMPARED))


def names_like(name: str, known: Iterable[str]) -> str:
    """List the known names for an error's text, the nearest first, then others; "none" without any."""
    names = sorted(known)
    alike = nearest_names(name, names)
    shown = [*alike, *(each for each in names if each not in alike)]
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return ", ".join(shown[:_MOST_SHOWN]) + more or "none"
