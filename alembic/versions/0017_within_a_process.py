"""Retention: a walk goes on within a process of which it has seen a part. Additive: the column has a default."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
# Older releases run on beside it: their walks begin such a process anew.
additive = True


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    column = sa.Column("cursor_task", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    op.add_column("retention", column, schema=schema)


def downgrade() -> None:
    op.drop_column("retention", "cursor_task", schema=op.get_context().version_table_schema)
