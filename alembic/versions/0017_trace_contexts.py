"""Trace contexts of tasks and messages. Additive: the columns may be NULL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage.statements import in_schema

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
# Older releases run on beside it. What they accept and set carries no trace context.
additive = True

# The view, whose old text stands in 0012.
_TASKS = """
SELECT
    n.name AS namespace, p.process_id, t.task_id, t.task_type, t.name,
    CASE
        WHEN s.claimable OR s.task_type NOT IN ('timeout', 'remove') OR s.task_id IS NULL
            THEN t.status::text
        WHEN p.status <> 'error' AND EXISTS (
            SELECT FROM progressor.schedule AS o
            WHERE
                o.process_no + 0 = s.process_no AND o.task_type IN ('timeout', 'remove') AND o.claimable
        ) THEN 'waiting'
        WHEN p.status = 'error' THEN 'held'
        ELSE 'blocked'
    END AS status,
    t.scheduled_time, t.running_time, t.finished_time,
    coalesce(t.attempts_count, 0) AS attempts_count, t.last_retry_interval,
    encode(t.args, 'escape') AS args, encode(t.response, 'escape') AS response, t.error,
    t.idempotency_key, lpad(to_hex(t.worker_id), 16, '0') AS worker, t.process_no,
    t.expires_at, coalesce(t.priority, 0) AS priority{more}
FROM progressor.tasks AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.schedule AS s ON s.process_no = t.process_no AND s.task_id = t.task_id
"""


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("tasks", "outbox"):
        op.add_column(table, sa.Column("trace", sa.Text()), schema=schema)
    view = _TASKS.format(more=", substr(t.trace, 4, 32) AS trace_id")
    op.execute(in_schema(f"CREATE OR REPLACE VIEW progressor.v_tasks AS {view}", schema))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.execute(in_schema("DROP VIEW progressor.v_tasks", schema))
    op.execute(in_schema(f"CREATE VIEW progressor.v_tasks AS {_TASKS.format(more='')}", schema))
    for table in ("outbox", "tasks"):
        op.drop_column(table, "trace", schema=schema)
