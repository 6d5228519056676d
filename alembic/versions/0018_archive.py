"""Archives: whether what a retention deletes is archived first. Additive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
# Older releases run on beside it. Their sweepers know no archive: stop them before a namespace gets one.
additive = True


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    archive = sa.Column("archive", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    op.add_column("retention", archive, schema=schema)


def downgrade() -> None:
    """Forget which namespaces have an archive: what they delete is gone from then on."""
    op.drop_column("retention", "archive", schema=op.get_context().version_table_schema)
