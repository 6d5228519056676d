"""Retention: for how long namespaces keep what has ended. Additive: columns may be NULL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage import storage_parameters

storage_parameters.backport()

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
# Older releases run on beside it, and delete nothing.
additive = True

_HOT = {
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "vacuum_truncate": "false",
}
# Room in these tables is filled again. To cut off an empty end, VACUUM would lock out all steps.
_LARGE = ("processes", "tasks", "events")
# As the other large tables: until now nothing was deleted from it but with its process.
_EVENTS = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for name in ("first_event_id", "swept_until"):
        op.add_column("processes", sa.Column(name, sa.BigInteger(), nullable=True), schema=schema)
    settings = ", ".join(f"{name} = {value}" for name, value in _EVENTS.items())
    op.execute(f'ALTER TABLE "{schema}".events SET ({settings})')
    for table in _LARGE:
        op.execute(f'ALTER TABLE "{schema}".{table} SET (vacuum_truncate = false)')
    _create_retention(schema)
    op.create_table(
        "task_marks",
        sa.Column("marked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("marked_at", name=op.f("task_marks_pkey")),
        schema=schema,
        comment="One row an hour while a namespace has a retention: walks pass over younger tasks.",
    )


def _create_retention(schema: str | None) -> None:
    moments = [
        sa.Column(name, sa.DateTime(timezone=True), nullable=True)
        for name in ("began_at", "ended_at", "cursor_at")
    ]
    counts = [
        sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
        for name in ("cursor_no", "tasks_deleted", "events_deleted", "passed_by", "cursor_task")
    ]
    op.create_table(
        "retention",
        sa.Column("namespace_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_set", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        *(sa.Column(name, sa.Interval(), nullable=True) for name in ("tasks", "keys", "events_for")),
        sa.Column("events_last", sa.BigInteger(), nullable=True),
        *moments,
        *counts,
        sa.CheckConstraint(
            "is_set OR (tasks IS NULL AND keys IS NULL AND events_for IS NULL AND events_last IS NULL)",
            name=op.f("retention_is_set_check"),
        ),
        sa.CheckConstraint(
            "events_for IS NULL OR events_last IS NULL", name=op.f("retention_events_check")
        ),
        sa.PrimaryKeyConstraint("namespace_no", name=op.f("retention_pkey")),
        schema=schema,
        comment="For how long namespaces keep what has ended, and the walks that delete the rest.",
        postgresql_with=_HOT,
    )
    op.create_index("retention_next", "retention", ["next_at"], schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_table("task_marks", schema=schema)
    op.drop_table("retention", schema=schema)
    for table in _LARGE:
        op.execute(f'ALTER TABLE "{schema}".{table} RESET (vacuum_truncate)')
    op.execute(f'ALTER TABLE "{schema}".events RESET ({", ".join(_EVENTS)})')
    for name in ("swept_until", "first_event_id"):
        op.drop_column("processes", name, schema=schema)
