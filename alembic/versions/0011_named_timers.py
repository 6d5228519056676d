"""Several timers of a process, each with a name of its own. Additive: the column has a default."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from progressor.storage.statements import in_schema

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
# Older releases run on beside it. They know one timer a process: set named ones once all are of this one.
additive = True

# The views, whose old texts stand in 0001. A timer behind one that can be claimed is not blocked.
_WAITS = """
        WHEN p.status <> 'error' AND EXISTS (
            SELECT FROM progressor.schedule AS o
            WHERE
                o.process_no + 0 = s.process_no AND o.task_type IN ('timeout', 'remove') AND o.claimable
        ) THEN 'waiting'"""
_TASKS = """
SELECT
    n.name AS namespace, p.process_id, t.task_id, t.task_type, t.name,
    CASE
        WHEN s.claimable OR s.task_type NOT IN ('timeout', 'remove') OR s.task_id IS NULL
            THEN t.status::text{waits}
        WHEN p.status = 'error' THEN 'held'
        ELSE 'blocked'
    END AS status,
    t.scheduled_time, t.running_time, t.finished_time,
    coalesce(t.attempts_count, 0) AS attempts_count, t.last_retry_interval,
    encode(t.args, 'escape') AS args, encode(t.response, 'escape') AS response, t.error,
    t.idempotency_key, lpad(to_hex(t.worker_id), 16, '0') AS worker, t.process_no
FROM progressor.tasks AS t
JOIN progressor.processes AS p ON p.process_no = t.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.schedule AS s ON s.process_no = t.process_no AND s.task_id = t.task_id
"""
_SCHEDULE = """
SELECT
    n.name AS namespace, p.process_id, s.task_id, s.task_type,
    CASE
        WHEN s.claimable OR s.task_type NOT IN ('timeout', 'remove') THEN 'waiting'{waits}
        WHEN p.status = 'error' THEN 'held'
        ELSE 'blocked'
    END AS status,
    s.scheduled_time, s.claimable, s.process_no{timer}
FROM progressor.schedule AS s
JOIN progressor.processes AS p ON p.process_no = s.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
"""
_TIMER = "task_type IN ('timeout', 'remove')"


def _index_timers(*columns: str) -> None:
    """Make the index of timers anew; while that takes its time, the old one goes on answering."""
    schema = op.get_context().version_table_schema
    op.create_index(
        "schedule_one_timer_new",
        "schedule",
        [sa.text("(process_no + 0)"), *columns],
        unique=True,
        postgresql_where=sa.text(_TIMER),
        schema=schema,
    )
    op.drop_index("schedule_one_timer", "schedule", schema=schema)
    op.execute(f'ALTER INDEX "{schema}".schedule_one_timer_new RENAME TO schedule_one_timer')


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    column = sa.Column("timer", sa.Text(collation="C"), server_default=sa.text("''::text"), nullable=False)
    op.add_column("schedule", column, schema=schema)
    _index_timers("timer")
    tasks, schedule = _TASKS.format(waits=_WAITS), _SCHEDULE.format(waits=_WAITS, timer=", s.timer")
    for name, query in (("v_tasks", tasks), ("v_schedule", schedule)):
        op.execute(in_schema(f"CREATE OR REPLACE VIEW progressor.{name} AS {query}", schema))


def downgrade() -> None:
    """Go back to one timer of a process; refused by its index while a process has several."""
    schema = op.get_context().version_table_schema
    tasks, schedule = _TASKS.format(waits=""), _SCHEDULE.format(waits="", timer="")
    op.execute(in_schema("DROP VIEW progressor.v_schedule", schema))
    op.execute(in_schema(f"CREATE VIEW progressor.v_schedule AS {schedule}", schema))
    op.execute(in_schema(f"CREATE OR REPLACE VIEW progressor.v_tasks AS {tasks}", schema))
    _index_timers()
    op.drop_column("schedule", "timer", schema=schema)
