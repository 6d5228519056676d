"""Bearer tokens of the HTTP API, and a view of them without their hashes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from progressor.storage.statements import in_schema

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
# Older releases run on beside it: they do not look at what is new.
additive = True

_VIEW = """
SELECT
    t.token_id, t.name, t.scopes, t.namespaces,
    CASE
        WHEN t.revoked_at IS NOT NULL THEN 'revoked'
        WHEN t.expires_at <= now() THEN 'expired'
        ELSE 'live'
    END AS status,
    t.created_at, t.expires_at, t.revoked_at, t.last_used_at
FROM progressor.tokens AS t
"""


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text(collation="C"), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("namespaces", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("length(secret_hash) = 32", name=op.f("tokens_secret_hash_check")),
        sa.CheckConstraint("cardinality(scopes) > 0", name=op.f("tokens_scopes_check")),
        sa.CheckConstraint("cardinality(namespaces) > 0", name=op.f("tokens_namespaces_check")),
        sa.PrimaryKeyConstraint("token_id", name=op.f("tokens_pkey")),
        schema=schema,
        comment=(
            "Bearer tokens of the HTTP API. A revoked one keeps its row: where there is one, all need one."
        ),
    )
    op.execute(in_schema(f"CREATE VIEW progressor.v_tokens AS {_VIEW}", schema))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.execute(in_schema("DROP VIEW progressor.v_tokens", schema))
    op.drop_table("tokens", schema=schema)
