"""The tables of bulks, part of `schema`: repairs of all processes that match."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Interval,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from progressor.storage.columns import (
    HOT as _HOT,
    KeyText as _KeyText,
    metadata,
    timestamp as _timestamp,
)

bulks = Table(
    "bulks",
    metadata,
    Column("bulk_id", BigInteger, Identity(always=True), primary_key=True),
    # The bound, by PostgreSQL's clock and by the tasks' numbers: what broke later is not touched.
    _timestamp("created_at"),
    Column("until_task", BigInteger, nullable=False),
    Column("namespace", _KeyText, nullable=False),
    Column("detail_like", Text),
    Column("handler", Text),
    Column("simple", Boolean, nullable=False),
    Column("args", LargeBinary),
    # The hash of the request that each process gets; key and hash of the one that made the bulk.
    Column("request_hash", LargeBinary, nullable=False),
    Column("idempotency_key", _KeyText, nullable=False),
    Column("bulk_hash", LargeBinary, nullable=False),
    # The time from one repair to the next.
    Column("pace", Interval, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'running'")),
    _timestamp("ended_at", nullable=True),
    # Where the next round goes on, in the order of the index of broken processes.
    _timestamp("cursor_at", nullable=True),
    Column("cursor_no", BigInteger, nullable=False, server_default=text("0")),
    Column("at_end", Boolean, nullable=False, server_default=text("false")),
    # When its pace allows another repair; when its next round is due.
    _timestamp("paced_at"),
    _timestamp("next_at"),
    # When it last came further; later, if its pace lets it rest after that.
    _timestamp("still_since"),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("looked_at", "passed_by", "begun", "repaired", "refused", "failed", "removed")
    ),
    Column("last_error", Text),
    # Whether the requests that broke its processes are run again; how many were.
    Column("redo", Boolean, nullable=False, server_default=text("false")),
    Column("redone", BigInteger, nullable=False, server_default=text("0")),
    UniqueConstraint("idempotency_key", name="bulks_idempotency_key"),
    CheckConstraint("status IN ('running', 'stopping', 'stopped', 'finished')", name="status"),
    CheckConstraint("(ended_at IS NOT NULL) = (status IN ('stopped', 'finished'))", name="ended_at"),
    CheckConstraint("pace > interval '0'", name="pace"),
    Index("bulks_next", "next_at", "bulk_id", postgresql_where=text("ended_at IS NULL")),
    comment="Repairs of all processes that match: which, how far they are, what came of them.",
    postgresql_with={"fillfactor": "50"},
)

bulk_repairs = Table(
    "bulk_repairs",
    metadata,
    Column("bulk_id", BigInteger, primary_key=True),
    Column("process_no", BigInteger, primary_key=True),
    Column("task_id", BigInteger, nullable=False),
    # The task to run again once the repair has ended well; NULL if there is none, or it was.
    Column("redo_task_id", BigInteger),
    comment="Repairs that a bulk has begun and of which it has not seen the end.",
    postgresql_with=_HOT,
)
