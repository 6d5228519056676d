"""The outbox: messages of steps, until they are delivered. Additive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from progressor.storage import storage_parameters
from progressor.storage.statements import in_schema

storage_parameters.backport()

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
# Older releases run on beside it: they send nothing, and leave what others sent.
additive = True

_KeyText = sa.Text(collation="C")
_OUTBOX = """
SELECT
    n.name AS sender_namespace, p.process_id AS sender_id, o.task_id, o.n, o.task_type, o.namespace,
    o.process_id, o.name, encode(o.args, 'escape') AS args, o.metadata, o.idempotency_key, o.created_at,
    o.due, o.attempts, o.process_no
FROM progressor.outbox AS o
LEFT JOIN progressor.processes AS p ON p.process_no = o.process_no
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
"""


def _moment(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    task_type = postgresql.ENUM(name="task_type", schema=schema, create_type=False)
    op.create_table(
        "outbox",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        _moment("created_at"),
        _moment("due"),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("task_type", task_type, nullable=False),
        sa.Column("namespace", _KeyText, nullable=False),
        sa.Column("process_id", _KeyText, nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("idempotency_key", _KeyText, nullable=False),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.Column("args", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("process_no", "task_id", "n", name=op.f("outbox_pkey")),
        sa.CheckConstraint("task_type IN ('init', 'notify')", name=op.f("outbox_task_type_check")),
        comment="Messages of steps that are committed, until they are delivered.",
        schema=schema,
        postgresql_with={
            "fillfactor": "70",
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
            "vacuum_truncate": "false",
        },
    )
    op.create_index("outbox_due", "outbox", ["due"], schema=schema)
    op.execute(in_schema(f"CREATE VIEW progressor.v_outbox AS {_OUTBOX}", schema))


def downgrade() -> None:
    """Drop the outbox, with the messages that wait in it."""
    schema = op.get_context().version_table_schema
    op.execute(in_schema("DROP VIEW progressor.v_outbox", schema))
    op.drop_table("outbox", schema=schema)
