"""Bulks that run the requests again which broke their processes. Additive: the columns have defaults."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
# Older releases run on beside it. Their bulk runners only repair: ask for redos once all are of this one.
additive = True


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    redo = sa.Column("redo", sa.Boolean(), nullable=False, server_default=sa.text("false"))
    redone = sa.Column("redone", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    for column in (redo, redone):
        op.add_column("bulks", column, schema=schema)
    op.add_column("bulk_repairs", sa.Column("redo_task_id", sa.BigInteger()), schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("bulk_repairs", "redo_task_id", schema=schema)
    for name in ("redone", "redo"):
        op.drop_column("bulks", name, schema=schema)
