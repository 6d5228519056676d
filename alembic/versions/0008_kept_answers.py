"""Answers of names with many ended lives are found by key. Additive: older releases look at each life."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
# Older releases run on beside it: they go on looking at each ended life of a name.
additive = True

_KeyText = sa.Text(collation="C")


def _index_names(*columns: str) -> None:
    """Make the index by name anew; while that takes its time, the old one goes on answering."""
    schema = op.get_context().version_table_schema
    op.create_index("removed_processes_by_new", "removed_processes", list(columns), schema=schema)
    op.drop_index("removed_processes_by_name", "removed_processes", schema=schema)
    op.execute(f'ALTER INDEX "{schema}".removed_processes_by_new RENAME TO removed_processes_by_name')


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for name in ("by_key", "has_requests"):
        column = sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.text("false"))
        op.add_column("removed_processes", column, schema=schema)
    _index_names("namespace", "process_id", "by_key")
    op.create_index(
        "removed_processes_with_requests",
        "removed_processes",
        ["process_no"],
        postgresql_where=sa.text("has_requests"),
        schema=schema,
    )
    op.create_table(
        "kept_answers",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("birth", sa.BigInteger(), nullable=True),
        sa.Column("namespace", _KeyText, nullable=False),
        sa.Column("process_id", _KeyText, nullable=False),
        sa.Column("idempotency_key", _KeyText, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "process_no", name=op.f("kept_answers_pkey")),
        comment="Answers of removed processes, by name and key, where many lives of one name ended.",
        schema=schema,
    )
    op.create_index(
        "kept_answers_by_key", "kept_answers", ["namespace", "process_id", "idempotency_key"], schema=schema
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_table("kept_answers", schema=schema)
    op.drop_index("removed_processes_with_requests", "removed_processes", schema=schema)
    _index_names("namespace", "process_id")
    for name in ("by_key", "has_requests"):
        op.drop_column("removed_processes", name, schema=schema)
