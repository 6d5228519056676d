"""Limits: the pause between two steps of a process, groups, and rates. Additive: columns may be NULL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage import storage_parameters
from progressor.storage.statements import in_schema

storage_parameters.backport()

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
# Older releases run on beside it, and hold no limit: set the first one once all are of this one.
additive = True

_RELEASE = "UPDATE progressor.schedule SET claimable = TRUE WHERE held_time IS NOT NULL"
_TIMES = (("processes", "rests_until"), ("schedule", "held_time"))
_GROUPED = ("processes", "schedule", "running")
_HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "vacuum_truncate": "false",
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for table, name in _TIMES:
        op.add_column(table, sa.Column(name, sa.DateTime(timezone=True), nullable=True), schema=schema)
    for table in _GROUPED:
        op.add_column(table, sa.Column("group_no", sa.Integer(), nullable=True), schema=schema)
    op.create_index(
        "schedule_held",
        "schedule",
        ["namespace_no", "group_no", "held_time", "task_id"],
        postgresql_where=sa.text("held_time IS NOT NULL"),
        schema=schema,
    )
    op.create_index(
        "running_by_group",
        "running",
        ["group_no"],
        postgresql_where=sa.text("group_no IS NOT NULL"),
        schema=schema,
    )
    op.create_table(
        "groups",
        sa.Column("group_no", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("namespace_no", sa.Integer(), nullable=False),
        sa.Column("group_key", sa.Text(collation="C"), nullable=False),
        sa.Column("group_limit", sa.Integer(), nullable=True),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("group_limit >= 0", name=op.f("groups_group_limit_check")),
        sa.PrimaryKeyConstraint("group_no", name=op.f("groups_pkey")),
        sa.UniqueConstraint("namespace_no", "group_key", name="groups_key"),
        schema=schema,
        comment="Groups of processes, of which only so many run at once. Claims lock the row.",
        postgresql_with=_HOT,
    )
    op.create_table(
        "rates",
        sa.Column("namespace_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace_no", name=op.f("rates_pkey")),
        schema=schema,
        comment="When the next step of a namespace with a rate may begin. Claims lock the row.",
        postgresql_with=_HOT,
    )


def downgrade() -> None:
    """Go back to no limits; what is held may be claimed."""
    schema = op.get_context().version_table_schema
    op.execute(in_schema(_RELEASE, schema))
    op.drop_table("rates", schema=schema)
    op.drop_table("groups", schema=schema)
    op.drop_index("running_by_group", "running", schema=schema)
    op.drop_index("schedule_held", "schedule", schema=schema)
    for table in _GROUPED:
        op.drop_column(table, "group_no", schema=schema)
    for table, name in _TIMES:
        op.drop_column(table, name, schema=schema)
