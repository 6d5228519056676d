"""Wordings that errors share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SCHEDULES: Final = "progressor.schedules"
"""The namespace whose processes are schedules: the id of each is its own namespace and its name."""
# Processes, or requests; above it texts say "more than 1,000".
_COUNTED = 1000


def named(namespace: str, process_id: str) -> str:
    """Return the name of a process for texts: quoted as a whole, whatever characters its id has."""
    return repr(f"{namespace}/{process_id}")


def process_text(namespace: str, process_id: str) -> str:
    """Return a process as errors name it: with its kind, `process` or `schedule`."""
    if namespace == SCHEDULES:
        return f"schedule {process_id!r}"
    return f"process {named(namespace, process_id)}"


def fault_text(fault: Mapping[str, Any]) -> str:
    """Return what a fault of a ValidationError says, in the validator's own words."""
    text: str = fault["msg"]
    return text.removeprefix("Value error, ").removeprefix("Assertion failed, ")


def counted(number: int) -> str:
    """Return a number as texts show it, which is counted up to a bound."""
    return "more than 1,000" if number > _COUNTED else str(number)


def in_use(workers: int, processes: int) -> str:
    """Return why a namespace cannot be retired, and what to do."""
    if workers:
        return f"live workers serve it ({workers}); stop them first"
    if processes:
        return (
            f"it has processes ({counted(processes)}); remove them first, or let a worker serve them to "
            "their end"
        )
    return "a worker registered it a moment ago; stop it, then wait for its lease to end"
