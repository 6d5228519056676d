"""Retention: a walk goes on within a process; VACUUM locks out nobody. Additive, with a default."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
# Older releases run on beside it: their walks begin such a process anew.
additive = True

# Room in these tables is filled again. To cut off an empty end, VACUUM would lock out all steps.
_LARGE = ("processes", "tasks", "events")


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in _LARGE:
        op.execute(f'ALTER TABLE "{schema}".{table} SET (vacuum_truncate = false)')
    column = sa.Column("cursor_task", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    op.add_column("retention", column, schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in _LARGE:
        op.execute(f'ALTER TABLE "{schema}".{table} RESET (vacuum_truncate)')
    op.drop_column("retention", "cursor_task", schema=schema)
