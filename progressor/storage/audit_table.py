"""The table of the audit, part of `schema`: rows are inserted, and no statement changes one."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from progressor.storage.columns import KeyText as _KeyText, metadata, timestamp as _timestamp

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
