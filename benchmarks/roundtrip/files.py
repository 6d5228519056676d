"""Two exports, compared line by line as JSON, without any code of the product.

Rule: numbers of tasks count by their places within a process. Processes may come in another order: what was
created at one moment has no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

_REDO = "progressor:redo:"
Records = list[dict[str, Any]]


def differences(source: Path, target: Path) -> Iterator[str]:
    """Yield what differs between the processes of two exports."""
    waiting: tuple[dict[str, Records], dict[str, Records]] = ({}, {})
    left, right = _processes(source), _processes(target)
    while True:
        pair = next(left, None), next(right, None)
        if pair == (None, None):
            break
        for mine, theirs, records in zip(waiting, reversed(waiting), pair, strict=True):
            if records is None:
                continue
            name = records[0]["process_id"]
            if name in theirs:
                yield from _compared(name, records, theirs.pop(name), of_source=mine is waiting[0])
            elif name in mine:
                yield f"{name} is twice in one export"
            else:
                mine[name] = records
    yield from (f"{name} is missing in the target's export" for name in waiting[0])
    yield from (f"{name} is in the target's export alone" for name in waiting[1])


def _compared(name: str, one: Records, other: Records, *, of_source: bool) -> Iterator[str]:
    """Yield what differs in one process; the first lines are those of the source, or else of the target."""
    was, became = (one, other) if of_source else (other, one)
    if len(was) != len(became):
        yield f"{name} has {len(became)} lines, and had {len(was)}"
    for before, after in zip(was, became, strict=False):
        for field in sorted(before.keys() | after.keys()):
            # As their texts: 1 and 1.0 and true are not the same.
            if repr(before.get(field)) != repr(after.get(field)):
                yield (
                    f"{name}, {before['kind']}: {field} is {str(after.get(field))[:200]} and was "
                    f"{str(before.get(field))[:200]}"
                )


def _processes(file: Path) -> Iterator[Records]:
    """Yield the lines of each process, numbers of tasks replaced by their places."""
    records: Records = []
    with file.open("rb") as lines:
        for line in lines:
            record = from_json(line)
            if "process_id" not in record:
                continue
            records.append(record)
            if record["kind"] == "end":
                yield _with_places(records)
                records = []
    if records:
        yield records


def _with_places(records: Records) -> Records:
    """Put places in the place of the numbers of tasks."""
    ids = sorted(each["task_id"] for each in records if each["kind"] == "task")
    places = {task_id: place for place, task_id in enumerate(ids, start=1)}
    for each in records:
        for field in ("task_id", "corrupted_by"):
            if field in each:
                each[field] = places.get(each[field], "no task of it")
        key = each.get("idempotency_key", "")
        if key.startswith(_REDO):
            each["idempotency_key"] = f"redo of {places.get(int(key.removeprefix(_REDO)))}"
    return records
