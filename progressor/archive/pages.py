"""Pages of an export, and the outcomes of an import."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from progressor.archive.records import WholeProcess


class ExportPage(NamedTuple):
    """A page of whole processes, and the cursor of the next page; None at the end."""

    processes: list[WholeProcess]
    cursor: str | None


class ImportOutcome(StrEnum):
    """The outcome of the import of one process."""

    IMPORTED = "imported"
    TAKEN = "taken"
    NO_NAMESPACE = "no namespace"
