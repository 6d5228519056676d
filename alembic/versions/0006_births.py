"""Births: a random number of each life of a process. Additive: NULL in a row from before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
# Older releases run on beside it: they write none. Without a default no row is rewritten.
additive = True

_TABLES = ("processes", "removed_processes")


def upgrade() -> None:
    for table in _TABLES:
        column = sa.Column("birth", sa.BigInteger(), nullable=True)
        op.add_column(table, column, schema=op.get_context().version_table_schema)


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "birth", schema=op.get_context().version_table_schema)
