"""The catalogue of a database's schema, and its differences from that of this release.

Rule: `catalog.txt` lists what the migrations make, one line each; a test holds it to a database that was
just migrated. Only what is listed is compared: what an operator added, an index say, is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

Entry = tuple[str, str, str]
"""Kind, name and definition."""
_Listed = Mapping[tuple[str, str], str]

# Kinds of which a missing part fails a statement or breaks a promise: nothing starts without it.
_NEEDED = ("table", "type", "column", "key")
_STORAGE_PARAMETER = "storage parameter"
_KINDS = (*_NEEDED, "constraint", "index", "view", _STORAGE_PARAMETER)


class Difference(NamedTuple):
    """A part of the schema that is not as this release makes it; `found` is None if it is missing."""

    kind: str
    name: str
    wanted: str
    found: str | None

    @property
    def is_needed(self) -> bool:
        """Return whether this release cannot work without it."""
        return self.kind in _NEEDED

    @property
    def is_tuning(self) -> bool:
        """Return whether an operator may have chosen it: a storage parameter, which changes no answer."""
        return self.kind == _STORAGE_PARAMETER

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.kind} {self.name} is missing"
        return f"{self.kind} {self.name} is {self.found}, not {self.wanted}"


def entries(rows: Iterable[Sequence[str]], schema: str) -> list[Entry]:
    """Return the rows of `catalog.sql`, sorted, without the name of the schema."""
    qualified = re.compile(rf'"?\b{re.escape(schema)}"?\.')
    return sorted((kind, name, qualified.sub("", definition)) for kind, name, definition in rows)


def differences(found: Iterable[Entry]) -> tuple[Difference, ...]:
    """Return the listed parts that are missing or different, the worst first."""
    there = {(kind, name): definition for kind, name, definition in found}
    different = [
        Difference(*key, wanted, there.get(key))
        for key, wanted in _listed().items()
        if there.get(key) != wanted
    ]
    return tuple(sorted(different, key=lambda each: _KINDS.index(each.kind)))


@cache
def _listed() -> _Listed:
    text = files("progressor.storage").joinpath("catalog.txt").read_text(encoding="utf-8")
    lines = [line.split(" | ", 2) for line in text.splitlines()]
    return {(kind, name): definition for kind, name, definition in lines}


def listing(found: Iterable[Entry]) -> str:
    """Return the text of `catalog.txt` for a database that was just migrated."""
    return "".join(f"{' | '.join(entry)}\n" for entry in found)
