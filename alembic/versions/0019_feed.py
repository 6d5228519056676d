"""The feed: what committed steps did, for readers outside the processes. Additive."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from progressor.storage import storage_parameters

storage_parameters.backport()

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
# Older releases run on beside it, and append nothing.
additive = True

_KeyText = sa.Text(collation="C")
_LARGE = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "vacuum_truncate": "false",
}
_CARDINALITIES = ", ".join(
    f"cardinality({name})"
    for name in ("process_nos", "process_ids", "task_ids", "last_event_ids", "event_counts")
)


def _array(name: str, type_: type[sa.types.TypeEngine[object]]) -> sa.Column[object]:
    return sa.Column(name, postgresql.ARRAY(type_()), nullable=False)


def _zero(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    identity = sa.Identity(always=True, cache=1)
    op.create_table(
        "feed",
        sa.Column("feed_id", sa.BigInteger(), identity, nullable=False),
        sa.Column("position", sa.BigInteger()),
        sa.Column("appended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("namespace", _KeyText, nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        _array("process_nos", sa.BigInteger),
        _array("process_ids", sa.Text),
        _array("task_ids", sa.BigInteger),
        _array("last_event_ids", sa.BigInteger),
        _array("event_counts", sa.Integer),
        sa.PrimaryKeyConstraint("feed_id", name=op.f("feed_pkey")),
        sa.CheckConstraint("position >= 1", name=op.f("feed_position_check")),
        sa.CheckConstraint(f"length(kinds) = ALL (ARRAY[{_CARDINALITIES}])", name=op.f("feed_items_check")),
        comment="What committed steps did, for readers: a row for each transaction and namespace.",
        schema=schema,
        postgresql_with=_LARGE,
    )
    for name, column, which in (
        ("feed_position", "position", "position IS NOT NULL"),
        ("feed_unnumbered", "feed_id", "position IS NULL"),
    ):
        op.create_index(
            name,
            "feed",
            [column],
            unique=column == "position",
            schema=schema,
            postgresql_where=sa.text(which),
        )
    op.create_table(
        "feed_head",
        sa.Column("is_one", sa.Boolean(), nullable=False, server_default=sa.text("true")),
        _zero("position"),
        _zero("dropped"),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("is_one", name=op.f("feed_head_pkey")),
        sa.CheckConstraint("is_one", name=op.f("feed_head_is_one_check")),
        sa.CheckConstraint("dropped >= 0 AND position >= dropped", name=op.f("feed_head_position_check")),
        comment="How far the feed is numbered. Who numbers rows locks this one.",
        schema=schema,
        postgresql_with={"fillfactor": "50"},
    )
    head = sa.table("feed_head", sa.column("epoch", sa.BigInteger()), schema=schema)
    op.execute(head.insert().values(epoch=secrets.randbits(62)))
    op.create_table(
        "feed_leftovers",
        sa.Column("process_no", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("process_no", name=op.f("feed_leftovers_pkey")),
        comment="Processes that are gone, and whose events stay for readers of the feed until then.",
        schema=schema,
    )
    op.create_index("feed_leftovers_by_end", "feed_leftovers", ["kept_until"], schema=schema)


def downgrade() -> None:
    """Drop the feed: readers begin anew after another upgrade."""
    schema = op.get_context().version_table_schema
    for table in ("feed_leftovers", "feed_head", "feed"):
        op.drop_table(table, schema=schema)
