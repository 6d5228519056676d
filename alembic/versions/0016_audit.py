"""The audit: what operators did, when, from where and why. Additive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage.statements import in_schema

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
# Older releases run on beside it. What operators do with them is not noted.
additive = True

_KeyText = sa.Text(collation="C")
_VIEW = """
SELECT
    a.acted_at, a.actor, a.verb, a.namespace, a.process_id, a.subject, a.detail, a.reason, a.way, a.origin,
    a.role, a.address, a.application, to_hex(a.act_id) AS act_id
FROM progressor.audit AS a
"""


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "audit",
        sa.Column("act_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("acted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("namespace", _KeyText),
        sa.Column("process_id", _KeyText),
        sa.Column("subject", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("way", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("address", sa.Text()),
        sa.Column("application", sa.Text()),
        sa.PrimaryKeyConstraint("act_id", name=op.f("audit_pkey")),
        schema=schema,
        comment="What operators did: a row for each act, of the same transaction. No row is ever changed.",
    )
    op.create_index("audit_by_time", "audit", ["acted_at", "act_id"], schema=schema)
    op.create_index(
        "audit_by_process", "audit", ["namespace", "process_id", "acted_at", "act_id"], schema=schema
    )
    op.execute(in_schema(f"CREATE VIEW progressor.v_audit AS {_VIEW}", schema))


def downgrade() -> None:
    """Drop the audit, with all its entries."""
    schema = op.get_context().version_table_schema
    op.execute(in_schema("DROP VIEW progressor.v_audit", schema))
    op.drop_table("audit", schema=schema)
