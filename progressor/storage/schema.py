"""The tables in SQLAlchemy Core: alembic compares databases with them, and reads are built on them.

Rules: a process is known by its number, drawn when it is made: the first column of every key, so that one
comparison finds its rows and the tables can be spread over databases. Its name, (namespace, process_id),
stands in `processes` alone. No foreign keys and no triggers (the lock on the process's row keeps the rows
of a process together); what a table can hold as a constraint stands here, not in code.

Columns that a step changes stand together: of an update on the same page PostgreSQL logs only what lies
between the first and the last byte that differ. In `tasks`, which is the largest, those of eight bytes come
first, then those of four, then texts: behind a text up to seven bytes are skipped, stored and logged.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

import progressor.storage.tables.bulks
import progressor.storage.tables.feed
import progressor.storage.tables.limits
import progressor.storage.tables.operators
import progressor.storage.tables.subscriptions  # noqa: F401 - tables of the same metadata, as those before
from progressor.storage.columns import (
    EMPTY as _EMPTY,
    HOT as _HOT,
    LARGE as _LARGE,
    MAILBOX as _MAILBOX,
    PROCESS_NO as _PROCESS_NO,
    TIMER as _TIMER,
    KeyText as _KeyText,
    metadata,
    process_status,
    task_status,
    task_type,
    timestamp as _timestamp,
)

namespaces = Table(
    "namespaces",
    metadata,
    Column("namespace_no", Integer, Identity(always=True), primary_key=True),
    Column("name", _KeyText, nullable=False),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("options", JSONB, nullable=False),
    Column("schemas", JSONB, nullable=False, server_default=_EMPTY),
    _timestamp("updated_at", default=True),
    # NULL unless it is paused with a reason.
    Column("pause_reason", Text),
    UniqueConstraint("name", name="namespaces_name"),
    comment="What the workers that serve a namespace say of it, for clients without user code.",
)

workers = Table(
    "workers",
    metadata,
    # A worker's id is a random number; people see it in hexadecimal.
    Column("worker_id", BigInteger, primary_key=True, autoincrement=False),
    Column("host", Text, nullable=False),
    Column("namespaces", ARRAY(Text), nullable=False),
    # The step_timeout of each namespace, in the order of `namespaces`: zombie collectors judge by it.
    Column("step_timeouts", ARRAY(Interval), nullable=False),
    Column("lease_age", Interval, nullable=False),
    _timestamp("started_at", default=True),
    Column("free_slots", JSONB, nullable=False, server_default=_EMPTY),
    # How often the row was renewed: its writer sees by this whether its last renewal is still there.
    Column("beats", BigInteger, nullable=False, server_default=text("1")),
    _timestamp("seen_at", default=True),
    # How many steps it performed in the last minute, and the functions that it serves, by namespace.
    Column("steps", JSONB, nullable=False, server_default=_EMPTY),
    Column("functions", JSONB, nullable=False, server_default=_EMPTY),
    CheckConstraint("cardinality(step_timeouts) = cardinality(namespaces)", name="step_timeouts"),
    comment="One row per live worker or collector process, renewed by its heartbeat thread.",
    # Rewritten every few seconds by every worker: keep room for HOT updates.
    postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.0"},
)

processes = Table(
    "processes",
    metadata,
    Column("process_no", BigInteger, Identity(always=True), nullable=False),
    _timestamp("created_at"),
    Column("namespace_no", Integer, nullable=False),
    Column("status", process_status, nullable=False),
    _timestamp("status_changed_at"),
    Column("previous_status", process_status),
    Column("process_id", _KeyText, nullable=False),
    Column("metadata", JSONB, nullable=False, server_default=_EMPTY),
    Column("corrupted_by", BigInteger),
    Column("detail", Text),
    Column("last_event_id", BigInteger, nullable=False, server_default=text("0")),
    Column("aux_state", LargeBinary),
    # Random: tells this life from another with its number, on a server that was promoted or restored.
    Column("birth", BigInteger),
    _timestamp("rests_until", nullable=True),
    Column("group_no", Integer),
    # NULL until a retention deletes any: the first event that is left, and up to which number tasks may be
    # gone.
    Column("first_event_id", BigInteger),
    Column("swept_until", BigInteger),
    PrimaryKeyConstraint("process_no"),
    UniqueConstraint("namespace_no", "process_id", name="processes_name"),
    CheckConstraint("length(process_id) BETWEEN 1 AND 256", name="process_id"),
    CheckConstraint("(status = 'error') = (detail IS NOT NULL)", name="detail"),
    CheckConstraint("last_event_id >= 0", name="last_event_id"),
    # The predicate is always true, and only searches state it: without it, the planner might look up names
    # by this index while the table is small, and a generic plan would keep that choice.
    Index(
        "processes_by_creation",
        "namespace_no",
        "created_at",
        "process_no",
        postgresql_where=text("created_at > '-infinity'"),
    ),
    Index(
        "processes_broken",
        "namespace_no",
        "created_at",
        "process_no",
        # Not by status: the first step of a process changes that, and would have to write to every index.
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
    postgresql_with={"fillfactor": "70", **_LARGE},
)

removed_processes = Table(
    "removed_processes",
    metadata,
    Column("process_no", BigInteger, nullable=False),
    _timestamp("kept_until"),
    # NULL where nobody can ask for its answers.
    Column("namespace", _KeyText),
    Column("process_id", _KeyText),
    Column("has_events", Boolean, nullable=False, server_default=text("false")),
    # NULL also where an older release removed it.
    Column("birth", BigInteger),
    # True if its answers stand in kept_answers: requests by its name do not look at this life.
    Column("by_key", Boolean, nullable=False, server_default=text("false")),
    # True while requests that waited on it are left to be deleted.
    Column("has_requests", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("process_no"),
    CheckConstraint("(namespace IS NULL) = (process_id IS NULL)", name="name"),
    Index("removed_processes_by_name", "namespace", "process_id", "by_key"),
    Index("removed_processes_by_end", "kept_until"),
    Index("removed_processes_with_events", "process_no", postgresql_where=text("has_events")),
    Index("removed_processes_with_requests", "process_no", postgresql_where=text("has_requests")),
    comment="Processes that are gone: answers that are kept for late callers, rows of large ones.",
)

kept_answers = Table(
    "kept_answers",
    metadata,
    Column("process_no", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    Column("birth", BigInteger),
    Column("namespace", _KeyText, nullable=False),
    Column("process_id", _KeyText, nullable=False),
    Column("idempotency_key", _KeyText, nullable=False),
    # Whoever has a task's address knows the process's name and this number.
    PrimaryKeyConstraint("task_id", "process_no"),
    Index("kept_answers_by_key", "namespace", "process_id", "idempotency_key"),
    comment="Answers of removed processes, by name and key, where many lives of one name ended.",
)

tasks = Table(
    "tasks",
    metadata,
    Column("process_no", BigInteger, nullable=False),
    Column("task_id", BigInteger, Identity(always=False), nullable=False),
    _timestamp("scheduled_time"),
    # The client process that waits for the answer.
    Column("reply_to", BigInteger),
    _timestamp("running_time", nullable=True),
    Column("worker_id", BigInteger),
    Column("lease", BigInteger),
    Column("last_retry_interval", Interval),
    _timestamp("finished_time", nullable=True),
    Column("task_type", task_type, nullable=False),
    Column("status", task_status, nullable=False),
    # Tries before this one, and losses of its worker; NULL, which takes no room, means none.
    Column("attempts_count", Integer),
    Column("zombie_count", Integer),
    Column("response", LargeBinary),
    Column("error", Text),
    Column("name", Text),
    Column("idempotency_key", _KeyText),
    Column("request_hash", LargeBinary),
    Column("args", LargeBinary),
    Column("context", LargeBinary),
    # Not begun by then, a request is refused; NULL for most.
    _timestamp("expires_at", nullable=True),
    # NULL, which takes no room, means 0.
    Column("priority", Integer),
    # Its trace context; NULL, which takes no room, where nobody traces.
    Column("trace", Text),
    PrimaryKeyConstraint("process_no", "task_id"),
    CheckConstraint(
        "(finished_time IS NOT NULL) = (status IN ('finished', 'error', 'cancelled'))",
        name="finished_time",
    ),
    # No column that a step changes stands in any index: updates stay on their page (HOT) if there is room.
    Index(
        "tasks_idempotency_key",
        _PROCESS_NO,
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    # Inserted, perhaps claimed, finished: all versions on one page (HOT) if half of it is left free.
    postgresql_with={"fillfactor": "50", **_LARGE},
)

schedule = Table(
    "schedule",
    metadata,
    Column("process_no", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    _timestamp("scheduled_time"),
    # That of the process: claims are by namespace.
    Column("namespace_no", Integer, nullable=False),
    Column("task_type", task_type, nullable=False),
    # The next task of a process on which nothing runs: what a claim may take. One per process, so that a
    # claim never wades through a long mailbox or the timers of busy processes.
    Column("claimable", Boolean, nullable=False),
    Column("timer", _KeyText, nullable=False, server_default=text("''::text")),
    # Of a request with a priority, or before one: where it stands among those that may be claimed.
    _timestamp("order_time", nullable=True),
    # Of a next task that is held: until then, or with a group for room there, in the order of these times.
    _timestamp("held_time", nullable=True),
    Column("group_no", Integer),
    PrimaryKeyConstraint("process_no", "task_id"),
    Index("schedule_one_timer", _PROCESS_NO, "timer", unique=True, postgresql_where=text(_TIMER)),
    *(
        Index(f"schedule_{name}", "namespace_no", *order, "task_id", postgresql_where=text(which))
        for name, order, which in (
            ("calls", (text("COALESCE(order_time, scheduled_time)"),), f"claimable AND {_MAILBOX}"),
            ("timers", ("scheduled_time",), f"claimable AND {_TIMER}"),
            ("held", ("group_no", "held_time"), "held_time IS NOT NULL"),
        )
    ),
    postgresql_with=_HOT,
)

running = Table(
    "running",
    metadata,
    Column("process_no", BigInteger, nullable=False),
    Column("worker_id", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    # The fence: a number of the claim, so that one claim of a task is never taken for another.
    Column("lease", BigInteger, nullable=False),
    _timestamp("running_time"),
    Column("task_type", task_type, nullable=False),
    Column("group_no", Integer),
    PrimaryKeyConstraint("process_no"),
    Index("running_by_group", "group_no", postgresql_where=text("group_no IS NOT NULL")),
    postgresql_with=_HOT,
)

events = Table(
    "events",
    metadata,
    Column("process_no", BigInteger, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    _timestamp("timestamp"),
    Column("metadata", JSONB, nullable=False, server_default=_EMPTY),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("process_no", "event_id"),
    CheckConstraint("event_id >= 1", name="event_id"),
    postgresql_with=_LARGE,
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", _KeyText, primary_key=True),
    # SHA-256 of the secret part; the secret itself is not stored.
    Column("secret_hash", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("namespaces", ARRAY(Text), nullable=False),
    _timestamp("created_at"),
    _timestamp("expires_at", nullable=True),
    _timestamp("revoked_at", nullable=True),
    _timestamp("last_used_at", nullable=True),
    CheckConstraint("length(secret_hash) = 32", name="secret_hash"),
    CheckConstraint("cardinality(scopes) > 0", name="scopes"),
    CheckConstraint("cardinality(namespaces) > 0", name="namespaces"),
    comment="Bearer tokens of the HTTP API. A revoked one keeps its row: where there is one, all need one.",
)

outbox = Table(
    "outbox",
    metadata,
    # The sender, and its step. The sender may be gone: its messages are delivered all the same.
    Column("process_no", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    _timestamp("created_at"),
    # When it is to be delivered, or tried again.
    _timestamp("due"),
    # Its place among the messages of the step.
    Column("n", Integer, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    # The request that it becomes, init or notify, and its target.
    Column("task_type", task_type, nullable=False),
    Column("namespace", _KeyText, nullable=False),
    Column("process_id", _KeyText, nullable=False),
    Column("name", Text),
    Column("idempotency_key", _KeyText, nullable=False),
    Column("request_hash", LargeBinary, nullable=False),
    Column("metadata", JSONB, nullable=False, server_default=_EMPTY),
    Column("args", LargeBinary),
    # The trace context of the step, if it has one.
    Column("trace", Text),
    # Drawn as its step is saved, behind the lock on the sender: the order in which a process sent. A task's
    # number is no such order: that of a timer is older than those of calls that ran before it.
    Column("sent_no", BigInteger, Identity(always=False), nullable=False),
    PrimaryKeyConstraint("process_no", "task_id", "n"),
    Index("outbox_line", _PROCESS_NO, "sent_no"),
    CheckConstraint("task_type IN ('init', 'notify')", name="task_type"),
    # Of the key nothing: no look-up by the key can be answered by it.
    Index("outbox_due", "due"),
    comment="Messages of steps that are committed, until they are delivered.",
    postgresql_with=_HOT,
)
