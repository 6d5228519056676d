"""Stored states of an older version, kept in a file, and read as the types of today.

Rule: an error names processes, fields and rules, never a value: states are customers' data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from progressor.codecs.codec import Owner
from progressor.errors import InvalidRequest
from progressor.errors.wordings import named
from progressor.handlers.codec import Wire, encode
from progressor.handlers.namespace import Namespace
from progressor.handlers.state.faults import state_faults
from progressor.testing.failures import UnreadableStates

_PLAIN = Wire()
_FORM = "must be the output of `progressor search --json`, or such outputs, one after the other"


def read_old_states(file: str | Path, namespaces: Sequence[Namespace[Any]]) -> int:
    """Read the states of a file as the types of their namespaces, and return how many there are.

    UnreadableStates if one cannot be read; InvalidRequest if the file has no states, or one of a namespace
    that is not among these.
    """
    known = {each.name: each for each in namespaces}
    count = 0
    faults: list[str] = []
    for item in _items(Path(file)):
        namespace = known.get(item["namespace"])
        if namespace is None or namespace.is_raw:
            why = "has a raw handler" if namespace else "is none of this world's"
            raise InvalidRequest(
                f"{file}: {item['namespace']} {why}, so its states have no type", field="file"
            )
        count += 1
        stored = encode(item["state"], field="state")
        found = state_faults(
            stored, wire=_PLAIN, shape=namespace.shape, of=Owner(namespace.name, item["process_id"])
        )
        place = named(item["namespace"], item["process_id"])
        faults += [f"{place}: {each.field}: {each.rule}" for each in found]
    if not count:
        raise InvalidRequest(f"{file} has no states: it {_FORM}", field="file")
    if faults:
        raise UnreadableStates(faults)
    return count


def _items(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the processes of each page of the file."""
    for page in _pages(file):
        items = page.get("items") if isinstance(page, dict) else None
        if not isinstance(items, list):
            raise InvalidRequest(f"{file} {_FORM}", field="file")
        for item in items:
            if not isinstance(item, dict) or not {"namespace", "process_id", "state"} <= item.keys():
                raise InvalidRequest(f"{file} {_FORM}, of processes with JSON states", field="file")
            yield item


def _pages(file: Path) -> Iterator[Any]:
    """Yield the values of a file that holds one JSON value after the other."""
    text, at = file.read_text(encoding="utf-8"), 0
    decoder = json.JSONDecoder()
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        try:
            page, at = decoder.raw_decode(text, at)
        except ValueError:
            raise InvalidRequest(f"{file} is not JSON: it {_FORM}", field="file") from None
        yield page
