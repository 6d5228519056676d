"""The functions that each worker serves. Additive: it has a default."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
# Older releases run on beside it: they list none.
additive = True


def upgrade() -> None:
    op.add_column(
        "workers",
        sa.Column(
            "functions",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    op.drop_column("workers", "functions", schema=op.get_context().version_table_schema)
