"""The columns, types and settings that tables share."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import Column, DateTime, MetaData, Text, text
from sqlalchemy.dialects.postgresql import ENUM

from progressor.config import DEFAULT_SCHEMA
from progressor.model import ProcessStatus, TaskStatus, TaskType
from progressor.storage import storage_parameters

storage_parameters.backport()

metadata = MetaData(
    schema=DEFAULT_SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    },
)

EMPTY = text("'{}'::jsonb")
LARGE = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    # What a retention deletes is filled again. To cut off an empty end, VACUUM would lock out all others.
    "vacuum_truncate": "false",
}
MAILBOX = "task_type IN ('init', 'call', 'notify', 'repair')"
TIMER = "task_type IN ('timeout', 'remove')"
# The number in another spelling, for indexes beside the primary key: the planner cannot answer a look-up by
# it with the primary key, by reading all rows of the process, whatever the statistics say.
PROCESS_NO = text("(process_no + 0)")
HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    # These tables shrink and grow all the time. To cut off an empty end, VACUUM would lock out all others.
    "vacuum_truncate": "false",
}


def timestamp(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    """Return a column of a moment, by default that of the insert."""
    moment = text("now()") if default else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=moment)


# Keys compare by bytes: cheaper than any locale's order, and the same on every server.
KeyText = Text(collation="C")


def enum(name: str, labels: Iterable[StrEnum]) -> ENUM:
    """Return an enum: four bytes in a row, a word in a query, and no other value."""
    return ENUM(*(label.value for label in labels), name=name, metadata=metadata, create_type=False)


process_status = enum("process_status", ProcessStatus)
task_type = enum("task_type", TaskType)
# In `tasks` a blocked or held timer is waiting; `schedule` has it as not claimable.
_ONLY_SHOWN = (TaskStatus.BLOCKED, TaskStatus.HELD)
task_status = enum("task_status", (status for status in TaskStatus if status not in _ONLY_SHOWN))
