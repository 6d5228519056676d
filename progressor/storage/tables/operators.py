"""The tables of operators' work, part of `schema`: retention and its walks, the audit, and the load."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    Interval,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from progressor.storage.columns import (
    HOT as _HOT,
    KeyText as _KeyText,
    metadata,
    timestamp as _timestamp,
)

_ZERO = text("0")

retention = Table(
    "retention",
    metadata,
    Column("namespace_no", Integer, primary_key=True, autoincrement=False),
    # The next round of its walk.
    _timestamp("next_at"),
    # True if an operator has set the four columns behind it: then the code of the namespace does not count.
    Column("is_set", Boolean, nullable=False, server_default=text("false")),
    Column("tasks", Interval),
    Column("keys", Interval),
    Column("events_for", Interval),
    Column("events_last", BigInteger),
    # The walk deletes what was old when it began. NULL: the next round begins one.
    _timestamp("began_at", nullable=True),
    _timestamp("ended_at", nullable=True),
    # Behind which process the walk goes on, in the order of their creation.
    _timestamp("cursor_at", nullable=True),
    *(
        Column(name, BigInteger, nullable=False, server_default=_ZERO)
        for name in ("cursor_no", "tasks_deleted", "events_deleted", "passed_by")
    ),
    # Behind which task, if the next process is the one with the next number: part of it is done.
    Column("cursor_task", BigInteger, nullable=False, server_default=_ZERO),
    # True if what is deleted is archived first: sweepers without an archive pass the namespace by.
    Column("archive", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint(
        "is_set OR (tasks IS NULL AND keys IS NULL AND events_for IS NULL AND events_last IS NULL)",
        name="is_set",
    ),
    CheckConstraint("events_for IS NULL OR events_last IS NULL", name="events"),
    Index("retention_next", "next_at"),
    comment="For how long namespaces keep what has ended, and the walks that delete the rest.",
    postgresql_with=_HOT,
)

task_marks = Table(
    "task_marks",
    metadata,
    Column("marked_at", DateTime(timezone=True), primary_key=True),
    # The last number that a task had drawn by then.
    Column("task_id", BigInteger, nullable=False),
    comment="One row an hour while a namespace has a retention: walks pass over younger tasks.",
)

# Rows are inserted; no statement changes one.
audit = Table(
    "audit",
    metadata,
    # Drawn at random by the caller: a repeated transaction finds its own row.
    Column("act_id", BigInteger, primary_key=True, autoincrement=False),
    _timestamp("acted_at"),
    Column("verb", Text, nullable=False),
    # What was changed. The namespace and the process may be gone.
    Column("namespace", _KeyText),
    Column("process_id", _KeyText),
    Column("subject", Text),
    Column("detail", Text),
    # Who did it, and from where, as the caller says.
    Column("actor", Text, nullable=False),
    Column("way", Text, nullable=False),
    Column("origin", Text),
    Column("reason", Text),
    # And as PostgreSQL knows it.
    Column("role", Text, nullable=False),
    Column("address", Text),
    Column("application", Text),
    Index("audit_by_time", "acted_at", "act_id"),
    Index("audit_by_process", "namespace", "process_id", "acted_at", "act_id"),
    comment="What operators did: a row for each act, of the same transaction. No row is ever changed.",
)

samples = Table(
    "samples",
    metadata,
    Column("namespace_no", Integer, nullable=False, autoincrement=False),
    # The minute that it is of.
    _timestamp("sampled_at"),
    *(
        Column(name, BigInteger, nullable=False)
        for name in ("broken", "waiting", "timers", "running", "steps")
    ),
    Column("slots", BigInteger),
    # The wait of the oldest request.
    Column("age", Interval, nullable=False),
    PrimaryKeyConstraint("namespace_no", "sampled_at"),
    comment="The load of namespaces, a row for each minute of the last day.",
)
