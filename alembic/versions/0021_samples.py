"""Samples: the load of each namespace, a row a minute, for a day. Additive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage import storage_parameters

storage_parameters.backport()

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
# Older releases run on beside it: their scanners note nothing.
additive = True

_COUNTS = ("broken", "waiting", "timers", "running", "steps")


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("namespace_no", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("sampled_at", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COUNTS),
        sa.Column("slots", sa.BigInteger()),
        sa.Column("age", sa.Interval(), nullable=False),
        sa.PrimaryKeyConstraint("namespace_no", "sampled_at", name=op.f("samples_pkey")),
        comment="The load of namespaces, a row for each minute of the last day.",
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    """Drop the samples: they are of the last day, and nothing needs them."""
    op.drop_table("samples", schema=op.get_context().version_table_schema)
