"""Subscriptions: readers of the feed whose places are kept. Additive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage import storage_parameters

storage_parameters.backport()

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
# Older releases run on beside it: they have no subscriptions.
additive = True

_KeyText = sa.Text(collation="C")
_HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "vacuum_truncate": "false",
}


def _moment(name: str, *, nullable: bool = False, default: bool = False) -> sa.Column[object]:
    moment = sa.text("now()") if default else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=moment)


def _number(name: str, *, default: str | None = None, nullable: bool = False) -> sa.Column[int]:
    value = None if default is None else sa.text(default)
    return sa.Column(name, sa.BigInteger(), nullable=nullable, server_default=value)


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "subscriptions",
        sa.Column("name", _KeyText, nullable=False),
        sa.Column("slices", sa.Integer(), nullable=False),
        _moment("created_at", default=True),
        sa.PrimaryKeyConstraint("name", name=op.f("subscriptions_pkey")),
        sa.CheckConstraint("slices BETWEEN 1 AND 64", name=op.f("subscriptions_slices_check")),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 256", name=op.f("subscriptions_name_check")),
        comment="Readers of the feed whose places are kept. Who gives out slices locks the row.",
        schema=schema,
    )
    op.create_table(
        "subscription_slices",
        sa.Column("name", _KeyText, nullable=False),
        sa.Column("slice", sa.Integer(), nullable=False),
        _number("lease", default="0"),
        _number("reader_id", nullable=True),
        *(_number(name) for name in ("position", "item", "n", "mark", "epoch")),
        _number("walk", nullable=True),
        _number("walk_n", default="-1"),
        _moment("committed_at", default=True),
        _moment("failing_since", nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text()),
        sa.Column("parks", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.PrimaryKeyConstraint("name", "slice", name=op.f("subscription_slices_pkey")),
        sa.CheckConstraint("slice BETWEEN 0 AND 63", name=op.f("subscription_slices_slice_check")),
        sa.CheckConstraint(
            "(failing_since IS NULL) = (error IS NULL)", name=op.f("subscription_slices_error_check")
        ),
        comment="The checkpoints of subscriptions, and which reader holds them.",
        schema=schema,
        postgresql_with=_HOT,
    )
    op.create_table(
        "subscription_readers",
        sa.Column("name", _KeyText, nullable=False),
        _number("reader_id"),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("lease_age", sa.Interval(), nullable=False),
        _moment("seen_at", default=True),
        sa.PrimaryKeyConstraint("name", "reader_id", name=op.f("subscription_readers_pkey")),
        comment="The live readers of subscriptions, renewed by their heartbeats.",
        schema=schema,
        postgresql_with=_HOT,
    )
    op.create_table(
        "parked",
        sa.Column("parked_no", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", _KeyText, nullable=False),
        sa.Column("slice", sa.Integer(), nullable=False),
        _number("process_no"),
        sa.Column("namespace", _KeyText, nullable=False),
        sa.Column("process_id", _KeyText, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        _number("n"),
        _number("task_id", nullable=True),
        _moment("timestamp"),
        sa.Column("position", sa.Text(), nullable=False),
        _moment("parked_at", default=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("action", sa.Text()),
        sa.PrimaryKeyConstraint("parked_no", name=op.f("parked_pkey")),
        sa.UniqueConstraint("name", "position", name="parked_once"),
        sa.CheckConstraint("action IN ('r', 's')", name=op.f("parked_action_check")),
        comment="What subscriptions could not deliver, and what waits behind it, in order by process.",
        schema=schema,
    )
    by_process = ["name", "namespace", "process_id", sa.text("(parked_no + 0)")]
    op.create_index("parked_of_process", "parked", by_process, schema=schema)
    acted_on = sa.text("action IS NOT NULL")
    by_slice = ["name", "slice", sa.text("(parked_no + 0)")]
    op.create_index("parked_acted_on", "parked", by_slice, schema=schema, postgresql_where=acted_on)


def downgrade() -> None:
    """Drop the subscriptions: readers begin anew after another upgrade."""
    schema = op.get_context().version_table_schema
    for table in ("parked", "subscription_readers", "subscription_slices", "subscriptions"):
        op.drop_table(table, schema=schema)
