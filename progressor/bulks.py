"""The nouns of bulks: repairs of all processes that match.

Rule: nothing in here talks to anything; the words are those of the glossary.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class BulkStatus(StrEnum):
    """Where a bulk stands; the last two are final."""

    RUNNING = "running"
    STOPPING = "stopping"
    """It begins nothing more; what it began goes on."""
    STOPPED = "stopped"
    FINISHED = "finished"

    @property
    def is_final(self) -> bool:
        return self in (BulkStatus.STOPPED, BulkStatus.FINISHED)


@dataclass(frozen=True, slots=True)
class Bulk:
    """The repair of all processes that match a filter and were broken when it was made.

    `looked_at` counts broken processes, `begun` the repairs of those that matched. `repaired`, `refused`
    (by the handler, with `Reject`), `failed` and `removed` (with its process, by somebody) say how these
    ended; the others are under way. `passed_by` counts those that matched and were left alone: repaired
    or removed meanwhile, being repaired, broken anew. `left` is how many match and are to come, None
    where it was not counted; there may be more if `has_more`.
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
        """How many repairs were begun and have not ended."""
        return self.begun - self.repaired - self.refused - self.failed - self.removed


@dataclass(frozen=True, slots=True)
class BrokenGroup:
    """Broken processes of one handler and one message; digits in it are shown as `#`."""

    handler: str | None
    detail: str
    processes: int
    first_broken: datetime
    last_broken: datetime
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """What a bulk would repair: `processes` in all, out of `looked_at`; more if `has_more`."""

    processes: int
    looked_at: int
    has_more: bool
    groups: tuple[BrokenGroup, ...]
