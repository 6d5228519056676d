"""The tables of subscriptions, part of `schema`: how far readers of the feed have come."""

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
    PrimaryKeyConstraint,
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

_ZERO = text("0")
# The number in another spelling: no look-up by it uses these indexes, and no order by it the primary key.
_PARKED_NO = text("(parked_no + 0)")

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("name", _KeyText, primary_key=True),
    Column("slices", Integer, nullable=False),
    _timestamp("created_at", default=True),
    CheckConstraint("slices BETWEEN 1 AND 64", name="slices"),
    CheckConstraint("length(name) BETWEEN 1 AND 256", name="name"),
    comment="Readers of the feed whose places are kept. Who gives out slices locks the row.",
)

subscription_slices = Table(
    "subscription_slices",
    metadata,
    Column("name", _KeyText, nullable=False),
    Column("slice", Integer, nullable=False),
    # Drawn at random whenever a reader gets the slice: who held it before can commit no more.
    Column("lease", BigInteger, nullable=False, server_default=_ZERO),
    Column("reader_id", BigInteger),
    # The checkpoint: all before this place is done.
    *(Column(name, BigInteger, nullable=False) for name in ("position", "item", "n", "mark", "epoch")),
    # The process that a walk comes to next; NULL: it has read all that there was. Then the event behind it.
    Column("walk", BigInteger),
    Column("walk_n", BigInteger, nullable=False, server_default=text("-1")),
    _timestamp("committed_at", default=True),
    # NULL unless what comes next fails: since when, how often, and how.
    _timestamp("failing_since", nullable=True),
    Column("attempts", Integer, nullable=False, server_default=_ZERO),
    Column("error", Text),
    # True if an operator wants that to be parked.
    Column("parks", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("name", "slice"),
    CheckConstraint("slice BETWEEN 0 AND 63", name="slice"),
    CheckConstraint("(failing_since IS NULL) = (error IS NULL)", name="error"),
    comment="The checkpoints of subscriptions, and which reader holds them.",
    postgresql_with=_HOT,
)

subscription_readers = Table(
    "subscription_readers",
    metadata,
    Column("name", _KeyText, nullable=False),
    Column("reader_id", BigInteger, nullable=False),
    Column("host", Text, nullable=False),
    Column("lease_age", Interval, nullable=False),
    _timestamp("seen_at", default=True),
    PrimaryKeyConstraint("name", "reader_id"),
    comment="The live readers of subscriptions, renewed by their heartbeats.",
    postgresql_with=_HOT,
)

parked = Table(
    "parked",
    metadata,
    Column("parked_no", BigInteger, Identity(always=True), primary_key=True),
    Column("name", _KeyText, nullable=False),
    Column("slice", Integer, nullable=False),
    Column("process_no", BigInteger, nullable=False),
    Column("namespace", _KeyText, nullable=False),
    Column("process_id", _KeyText, nullable=False),
    # The entry of the feed: its payload stands in `events`.
    Column("kind", Text, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("task_id", BigInteger),
    _timestamp("timestamp"),
    Column("position", Text, nullable=False),
    _timestamp("parked_at", default=True),
    Column("attempts", Integer, nullable=False),
    # NULL of what only waits for an earlier one of its process.
    Column("error", Text),
    # What an operator wants: `r` another try, `s` that it is skipped. The reader of the slice does it.
    Column("action", Text),
    UniqueConstraint("name", "position", name="parked_once"),
    CheckConstraint("action IN ('r', 's')", name="action"),
    Index("parked_of_process", "name", "namespace", "process_id", _PARKED_NO),
    Index("parked_acted_on", "name", "slice", _PARKED_NO, postgresql_where=text("action IS NOT NULL")),
    comment="What subscriptions could not deliver, and what waits behind it, in order by process.",
)
