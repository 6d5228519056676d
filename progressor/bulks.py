"""The nouns of bulks: repairs of all processes that match.

Rule: this module does no I/O, and its words are those of the glossary.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class BulkStatus(StrEnum):
    """The statuses of a bulk; the last two are final."""

    RUNNING = "running"
    STOPPING = "stopping"
    """The bulk begins no more repairs; those that it began go on."""
    STOPPED = "stopped"
    FINISHED = "finished"

    @property
    def is_final(self) -> bool:
        return self in (BulkStatus.STOPPED, BulkStatus.FINISHED)


@dataclass(frozen=True, slots=True)
class Bulk:
    """The repair of all processes that match a filter and were broken when it was made.

    `looked_at` counts broken processes, `begun` the repairs of those that matched. Of these repairs,
    `repaired` succeeded, `refused` ended with the handler's `Reject`, `failed` failed, and `removed` ended
    because somebody removed the process; the others are under way. `passed_by` counts processes that
    matched and were left alone: repaired or removed meanwhile, in repair, or broken anew. `left` counts
    those that match and are to come, None if they were not counted; there may be more if `has_more`.
    `rate` is in repairs per second.
    """

    bulk_id: int
    namespace: str
    status: BulkStatus
    created_at: datetime
    ended_at: datetime | None
    rate: float
    simple: bool
    detail_like: str | None = None
    handler: str | None = None
    looked_at: int = 0
    passed_by: int = 0
    begun: int = 0
    repaired: int = 0
    refused: int = 0
    failed: int = 0
    removed: int = 0
    last_error: str | None = None
    left: int | None = None
    has_more: bool = False

    @property
    def under_way(self) -> int:
        """The number of repairs that were begun and have not ended."""
        return self.begun - self.repaired - self.refused - self.failed - self.removed


@dataclass(frozen=True, slots=True)
class BrokenGroup:
    """The broken processes of one handler and one message; its digits are shown as `#`."""

    handler: str | None
    detail: str
    processes: int
    first_broken: datetime
    last_broken: datetime
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The processes that a bulk would repair: `processes` of `looked_at`; maybe more if `has_more`."""

    processes: int
    looked_at: int
    has_more: bool
    groups: tuple[BrokenGroup, ...]
