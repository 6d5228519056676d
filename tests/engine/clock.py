"""Processes made at a time of the test's choosing: what is due, or dead, PostgreSQL's clock says."""

from datetime import UTC, datetime
from typing import Any

from progressor.model import Decision
from progressor.storage.operations import Storage
from tests.support import hold, init, resume, save

PAST = datetime(2020, 1, 1, tzinfo=UTC)


async def start_at(
    storage: Storage,
    now: datetime | None,
    process_id: str = "p1",
    decision: Decision | None = None,
    **fields: Any,
) -> None:
    """Make a process at a moment (None: now) whose init ended with `decision`."""
    first = await hold(storage, init(process_id, **fields), now=now)
    await save(storage, first, decision or resume(), now=now)
