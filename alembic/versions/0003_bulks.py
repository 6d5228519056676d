"""Bulks: repairs of all processes that match. Additive: what knows nothing of them runs on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
# Older releases run on beside it: they do not look at what is new.
additive = True

_COUNTS = ("looked_at", "passed_by", "begun", "repaired", "refused", "failed", "removed")


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "bulks",
        sa.Column("bulk_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until_task", sa.BigInteger(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("detail_like", sa.Text(), nullable=True),
        sa.Column("handler", sa.Text(), nullable=True),
        sa.Column("simple", sa.Boolean(), nullable=False),
        sa.Column("args", sa.LargeBinary(), nullable=True),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("idempotency_key", sa.Text(collation="C"), nullable=False),
        sa.Column("bulk_hash", sa.LargeBinary(), nullable=False),
        sa.Column("pace", sa.Interval(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cursor_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cursor_no", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("at_end", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("paced_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("still_since", sa.DateTime(timezone=True), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
            for name in _COUNTS
        ),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'stopping', 'stopped', 'finished')", name=op.f("bulks_status_check")
        ),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (status IN ('stopped', 'finished'))",
            name=op.f("bulks_ended_at_check"),
        ),
        sa.CheckConstraint("pace > interval '0'", name=op.f("bulks_pace_check")),
        sa.PrimaryKeyConstraint("bulk_id", name=op.f("bulks_pkey")),
        sa.UniqueConstraint("idempotency_key", name="bulks_idempotency_key"),
        schema=schema,
        comment="Repairs of all processes that match: which, how far they are, what came of them.",
        postgresql_with={"fillfactor": "50"},
    )
    op.create_index(
        "bulks_next",
        "bulks",
        ["next_at", "bulk_id"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "bulk_repairs",
        sa.Column("bulk_id", sa.BigInteger(), nullable=False),
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bulk_id", "process_no", name=op.f("bulk_repairs_pkey")),
        schema=schema,
        comment="Repairs that a bulk has begun and of which it has not seen the end.",
        postgresql_with={
            "fillfactor": "70",
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
            "vacuum_truncate": "false",
        },
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("bulk_repairs", "bulks"):
        op.drop_table(table, schema=schema)
