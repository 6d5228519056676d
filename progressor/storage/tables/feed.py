"""The tables of the feed, part of `schema`: what committed steps did, in an order that readers can keep."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from progressor.storage.columns import (
    LARGE as _LARGE,
    KeyText as _KeyText,
    metadata,
    timestamp as _timestamp,
)

feed = Table(
    "feed",
    metadata,
    # Drawn behind the locks of the processes: of two changes of one process the later has the higher.
    Column("feed_id", BigInteger, Identity(always=True, cache=1), primary_key=True),
    # NULL until the row is seen by a reader: then the next number, without gaps.
    Column("position", BigInteger),
    _timestamp("appended_at"),
    Column("namespace", _KeyText, nullable=False),
    # A letter for each process that the transaction changed, and what happened to it, in these columns.
    Column("kinds", Text, nullable=False),
    Column("process_nos", ARRAY(BigInteger), nullable=False),
    Column("process_ids", ARRAY(Text), nullable=False),
    Column("task_ids", ARRAY(BigInteger), nullable=False),
    # The last event of its history by then, and how many of them are new.
    Column("last_event_ids", ARRAY(BigInteger), nullable=False),
    Column("event_counts", ARRAY(Integer), nullable=False),
    CheckConstraint("position >= 1", name="position"),
    CheckConstraint(
        "length(kinds) = ALL (ARRAY[cardinality(process_nos), cardinality(process_ids), "
        "cardinality(task_ids), cardinality(last_event_ids), cardinality(event_counts)])",
        name="items",
    ),
    Index("feed_position", "position", unique=True, postgresql_where=text("position IS NOT NULL")),
    Index("feed_unnumbered", "feed_id", postgresql_where=text("position IS NULL")),
    comment="What committed steps did, for readers: a row for each transaction and namespace.",
    postgresql_with=_LARGE,
)

feed_head = Table(
    "feed_head",
    metadata,
    Column("is_one", Boolean, primary_key=True, server_default=text("true")),
    # The highest position that was given, and the highest whose row was deleted since.
    Column("position", BigInteger, nullable=False, server_default=text("0")),
    Column("dropped", BigInteger, nullable=False, server_default=text("0")),
    # Random: tells the positions of this feed from those of another database.
    Column("epoch", BigInteger, nullable=False),
    CheckConstraint("is_one", name="is_one"),
    CheckConstraint("dropped >= 0 AND position >= dropped", name="position"),
    comment="How far the feed is numbered. Who numbers rows locks this one.",
    postgresql_with={"fillfactor": "50"},
)

feed_leftovers = Table(
    "feed_leftovers",
    metadata,
    Column("process_no", BigInteger, primary_key=True, autoincrement=False),
    _timestamp("kept_until"),
    Index("feed_leftovers_by_end", "kept_until"),
    comment="Processes that are gone, and whose events stay for readers of the feed until then.",
)
