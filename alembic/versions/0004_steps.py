"""How many steps each worker performed in the last minute. Additive: it has a default."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
# Older releases run on beside it: they write none.
additive = True


def upgrade() -> None:
    op.add_column(
        "workers",
        sa.Column(
            "steps",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    op.drop_column("workers", "steps", schema=op.get_context().version_table_schema)
