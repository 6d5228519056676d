"""The tables of limits, part of `schema`: what claims lock so that a limit holds over all workers."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Identity, Integer, Table, UniqueConstraint

from progressor.storage.columns import HOT as _HOT, KeyText as _KeyText, metadata, timestamp as _timestamp

groups = Table(
    "groups",
    metadata,
    Column("group_no", Integer, Identity(always=True), primary_key=True),
    Column("namespace_no", Integer, nullable=False),
    Column("group_key", _KeyText, nullable=False),
    Column("group_limit", Integer),
    # When the next step may begin by the rate of its groups; NULL until the first begins.
    _timestamp("next_at", nullable=True),
    UniqueConstraint("namespace_no", "group_key", name="groups_key"),
    CheckConstraint("group_limit >= 0", name="group_limit"),
    comment="Groups of processes, of which only so many run at once. Claims lock the row.",
    postgresql_with=_HOT,
)

rates = Table(
    "rates",
    metadata,
    Column("namespace_no", Integer, primary_key=True, autoincrement=False),
    # When the next step may begin.
    _timestamp("next_at"),
    comment="When the next step of a namespace with a rate may begin. Claims lock the row.",
    postgresql_with=_HOT,
)
