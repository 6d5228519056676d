"""Why a namespace is paused. Additive: it may be NULL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
# Older releases run on beside it: they pause without a reason.
additive = True


def upgrade() -> None:
    op.add_column(
        "namespaces", sa.Column("pause_reason", sa.Text()), schema=op.get_context().version_table_schema
    )


def downgrade() -> None:
    op.drop_column("namespaces", "pause_reason", schema=op.get_context().version_table_schema)
