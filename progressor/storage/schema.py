"""The tables, as SQLAlchemy Core: what alembic compares with, and what the reads are built on.

Rules: `namespace` is the first column of every key, so that the tables can be distributed by process;
no foreign keys and no triggers (the lock on the process's row keeps the rows of a process together);
what a table can hold as a constraint stands here, not in code.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

_NOW = text("now()")
_EMPTY = text("'{}'::jsonb")
_MAILBOX = "task_type IN ('init', 'call', 'notify', 'repair')"
_TIMER = "task_type IN ('timeout', 'remove')"


def _timestamp(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    return Column(
        name,
        DateTime(timezone=True),
        nullable=nullable,
        server_default=_NOW if default else None,
    )


# Keys compare by bytes: cheaper than any locale's order, and the same on every server.
_KeyText = Text(collation="C")


def _key() -> tuple[Column[str], Column[str]]:
    return (
        Column("namespace", _KeyText, nullable=False),
        Column("process_id", _KeyText, nullable=False),
    )


namespaces = Table(
    "namespaces",
    metadata,
    Column("name", _KeyText, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("options", JSONB, nullable=False),
    Column("schemas", JSONB, nullable=False, server_default=_EMPTY),
    _timestamp("updated_at", default=True),
    comment="What the workers that serve a namespace say of it, for clients without user code.",
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", _KeyText, primary_key=True),
    Column("host", Text, nullable=False),
    Column("namespaces", ARRAY(Text), nullable=False),
    Column("free_slots", JSONB, nullable=False, server_default=_EMPTY),
    _timestamp("started_at", default=True),
    _timestamp("seen_at", default=True),
    comment="One row per live worker process, renewed by its heartbeat thread.",
    # Rewritten every few seconds by every worker: keep room for HOT updates.
    postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.0"},
)

processes = Table(
    "processes",
    metadata,
    *_key(),
    Column("status", Text, nullable=False),
    Column("previous_status", Text),
    _timestamp("status_changed_at"),
    _timestamp("created_at"),
    Column("detail", Text),
    Column("aux_state", LargeBinary),
    Column("metadata", JSONB, nullable=False, server_default=_EMPTY),
    Column("corrupted_by", BigInteger),
    Column("last_event_id", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("namespace", "process_id"),
    CheckConstraint("length(process_id) BETWEEN 1 AND 256", name="process_id"),
    CheckConstraint("status IN ('init', 'running', 'error')", name="status"),
    CheckConstraint("(status = 'error') = (detail IS NOT NULL)", name="detail"),
    CheckConstraint("last_event_id >= 0", name="last_event_id"),
    # A predicate that is always true and that only searches state: without it, look-ups by key would tie
    # with the primary key while the table is small, and a generic plan keeps what it chose.
    Index(
        "processes_by_creation",
        "namespace",
        "created_at",
        "process_id",
        postgresql_where=text("process_id <> ''"),
    ),
    Index(
        "processes_broken",
        "namespace",
        "created_at",
        "process_id",
        # Not by status: a start changes it, and its first step would have to write to every index.
        postgresql_where=text("detail IS NOT NULL"),
    ),
    Index(
        "processes_by_metadata",
        "metadata",
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=text("metadata <> '{}'::jsonb"),
    ),
    # A step rewrites the row in place: room on the page keeps the update off the indexes.
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_threshold": "1000",
        "autovacuum_vacuum_cost_delay": "0",
    },
)

tasks = Table(
    "tasks",
    metadata,
    *_key(),
    Column("task_id", BigInteger, Identity(always=False), nullable=False),
    Column("task_type", Text, nullable=False),
    Column("status", Text, nullable=False),
    _timestamp("scheduled_time"),
    _timestamp("running_time", nullable=True),
    _timestamp("finished_time", nullable=True),
    Column("args", LargeBinary),
    Column("metadata", JSONB, nullable=False, server_default=_EMPTY),
    Column("idempotency_key", _KeyText),
    Column("request_hash", LargeBinary),
    Column("response", LargeBinary),
    Column("error", Text),
    Column("last_retry_interval", Interval),
    Column("attempts_count", Integer, nullable=False, server_default=text("0")),
    Column("context", LargeBinary),
    Column("worker_id", _KeyText),
    Column("lease", BigInteger),
    # The process is gone; the row is kept a while for callers who still wait for its answer.
    Column("orphaned", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("namespace", "process_id", "task_id"),
    CheckConstraint(
        "task_type IN ('init', 'call', 'notify', 'repair', 'timeout', 'remove')", name="task_type"
    ),
    CheckConstraint("status IN ('waiting', 'running', 'finished', 'error', 'cancelled')", name="status"),
    CheckConstraint(
        "(finished_time IS NOT NULL) = (status IN ('finished', 'error', 'cancelled'))",
        name="finished_time",
    ),
    Index(
        "tasks_idempotency_key",
        "namespace",
        "process_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    # No column that a step changes stands in any index: updates stay on their page (HOT) if there is room.
    Index("tasks_orphaned", "namespace", "process_id", "task_id", postgresql_where=text("orphaned")),
    # Inserted, perhaps claimed, finished: all versions on one page (HOT) if half of it is left free.
    postgresql_with={
        "fillfactor": "50",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_threshold": "1000",
        "autovacuum_vacuum_cost_delay": "0",
    },
)

_HOT = {
    "fillfactor": "50",
    "autovacuum_vacuum_scale_factor": "0.0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
}

schedule = Table(
    "schedule",
    metadata,
    *_key(),
    Column("task_id", BigInteger, nullable=False),
    Column("task_type", Text, nullable=False),
    # `blocked` stands here only: in `tasks` a blocked timer is a waiting task.
    Column("status", Text, nullable=False),
    _timestamp("scheduled_time"),
    # The next task of a process on which nothing runs: what a claim may take. One per process, so
    # that a claim never wades through a long mailbox or the timers of busy processes.
    Column("claimable", Boolean, nullable=False),
    PrimaryKeyConstraint("namespace", "process_id", "task_id"),
    CheckConstraint("status IN ('waiting', 'blocked')", name="status"),
    CheckConstraint(f"status = 'waiting' OR {_TIMER}", name="blocked_is_timer"),
    CheckConstraint("status = 'waiting' OR NOT claimable", name="blocked_not_claimable"),
    Index(
        "schedule_one_timer",
        "namespace",
        "process_id",
        unique=True,
        postgresql_where=text(_TIMER),
    ),
    Index(
        "schedule_calls",
        "namespace",
        "scheduled_time",
        "task_id",
        postgresql_where=text(f"claimable AND {_MAILBOX}"),
    ),
    Index(
        "schedule_timers",
        "namespace",
        "scheduled_time",
        "task_id",
        postgresql_where=text(f"claimable AND {_TIMER}"),
    ),
    postgresql_with=_HOT,
)

running = Table(
    "running",
    metadata,
    *_key(),
    Column("task_id", BigInteger, nullable=False),
    Column("task_type", Text, nullable=False),
    Column("worker_id", _KeyText, nullable=False),
    # The fence: a number of the claim, so that one claim of a task is never taken for another.
    Column("lease", BigInteger, nullable=False),
    _timestamp("running_time"),
    PrimaryKeyConstraint("namespace", "process_id"),
    Index("running_by_worker", "worker_id"),
    postgresql_with=_HOT,
)

events = Table(
    "events",
    metadata,
    *_key(),
    Column("event_id", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    _timestamp("timestamp"),
    Column("metadata", JSONB, nullable=False, server_default=_EMPTY),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("namespace", "process_id", "event_id"),
    CheckConstraint("event_id >= 1", name="event_id"),
)
