"""Requests that expire, and requests with a priority. Additive: the columns may be NULL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage.statements import in_schema

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
# Older releases run on beside it. Their workers run a request that has expired, know no priority, and sort
# what may be claimed, as the index has another order.
additive = True

# The view, whose old text stands in 0011.
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
    t.idempotency_key, lpad(to_hex(t.worker_id), 16, '0') AS worker, t.process_no{more}
FROM progressor.tasks AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.schedule AS s ON s.process_no = t.process_no AND s.task_id = t.task_id
"""


def _index_requests(order: str) -> None:
    """Make the index of requests anew; while that takes its time, the old one goes on answering."""
    schema = op.get_context().version_table_schema
    op.create_index(
        "schedule_calls_new",
        "schedule",
        ["namespace_no", sa.text(order), "task_id"],
        postgresql_where=sa.text("claimable AND task_type IN ('init', 'call', 'notify', 'repair')"),
        schema=schema,
    )
    op.drop_index("schedule_calls", "schedule", schema=schema)
    op.execute(f'ALTER INDEX "{schema}".schedule_calls_new RENAME TO schedule_calls')


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.add_column("tasks", sa.Column("expires_at", sa.DateTime(timezone=True)), schema=schema)
    op.add_column("tasks", sa.Column("priority", sa.Integer()), schema=schema)
    op.add_column("schedule", sa.Column("order_time", sa.DateTime(timezone=True)), schema=schema)
    _index_requests("COALESCE(order_time, scheduled_time)")
    view = _TASKS.format(more=", t.expires_at, coalesce(t.priority, 0) AS priority")
    op.execute(in_schema(f"CREATE OR REPLACE VIEW progressor.v_tasks AS {view}", schema))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.execute(in_schema("DROP VIEW progressor.v_tasks", schema))
    op.execute(in_schema(f"CREATE VIEW progressor.v_tasks AS {_TASKS.format(more='')}", schema))
    _index_requests("scheduled_time")
    op.drop_column("schedule", "order_time", schema=schema)
    op.drop_column("tasks", "priority", schema=schema)
    op.drop_column("tasks", "expires_at", schema=schema)
