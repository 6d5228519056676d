"""The tables of the engine, their types, and the views for people who look with psql."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from progressor.storage.statements import in_schema

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TYPES = {
    "process_status": ("init", "running", "error"),
    "task_type": ("init", "call", "notify", "repair", "timeout", "remove"),
    "task_status": ("waiting", "running", "finished", "error", "cancelled"),
}

# In the order in which they stand on one another.
_VIEWS = {
    "v_processes": """
SELECT
    n.name AS namespace, p.process_id, p.status, p.previous_status, p.status_changed_at, p.created_at,
    p.detail, p.corrupted_by, p.last_event_id, p.metadata,
    encode(p.aux_state, 'escape') AS state, p.process_no
FROM progressor.processes AS p
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
""",
    "v_tasks": """
SELECT
    n.name AS namespace, p.process_id, t.task_id, t.task_type, t.name,
    CASE
        WHEN s.claimable OR s.task_type NOT IN ('timeout', 'remove') OR s.task_id IS NULL
            THEN t.status::text
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
""",
    "v_events": """
SELECT
    n.name AS namespace, p.process_id, e.event_id, e.metadata ->> 'name' AS name, e.timestamp,
    encode(e.payload, 'escape') AS payload, e.metadata, e.task_id, e.process_no
FROM progressor.events AS e
JOIN progressor.processes AS p ON p.process_no = e.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
""",
    "v_schedule": """
SELECT
    n.name AS namespace, p.process_id, s.task_id, s.task_type,
    CASE
        WHEN s.claimable OR s.task_type NOT IN ('timeout', 'remove') THEN 'waiting'
        WHEN p.status = 'error' THEN 'held'
        ELSE 'blocked'
    END AS status,
    s.scheduled_time, s.claimable, s.process_no
FROM progressor.schedule AS s
JOIN progressor.processes AS p ON p.process_no = s.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
""",
    "v_running": """
SELECT
    n.name AS namespace, p.process_id, r.task_id, r.task_type, r.running_time,
    now() - r.running_time AS age, lpad(to_hex(r.worker_id), 16, '0') AS worker, w.host, r.process_no
FROM progressor.running AS r
JOIN progressor.processes AS p ON p.process_no = r.process_no
JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
LEFT JOIN progressor.workers AS w ON w.worker_id = r.worker_id
""",
    "v_workers": """
SELECT
    lpad(to_hex(w.worker_id), 16, '0') AS worker, w.host, w.namespaces, w.free_slots, w.started_at,
    w.seen_at, now() - w.seen_at AS silence, w.lease_age, w.step_timeouts,
    (SELECT count(*) FROM progressor.running AS r WHERE r.worker_id = w.worker_id) AS running
FROM progressor.workers AS w
""",
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    types = {}
    for name, labels in _TYPES.items():
        listed = ", ".join(f"'{label}'" for label in labels)
        op.execute(in_schema(f"CREATE TYPE progressor.{name} AS ENUM ({listed})", schema))
        types[name] = postgresql.ENUM(*labels, name=name, schema=schema, create_type=False)
    op.create_table(
        "events",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("event_id >= 1", name=op.f("events_event_id_check")),
        sa.PrimaryKeyConstraint("process_no", "event_id", name=op.f("events_pkey")),
        schema=schema,
    )
    op.create_table(
        "namespaces",
        sa.Column("namespace_no", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("options", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "schemas",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("namespace_no", name=op.f("namespaces_pkey")),
        sa.UniqueConstraint("name", name="namespaces_name"),
        schema=schema,
        comment="What the workers that serve a namespace say of it, for clients without user code.",
    )
    op.create_table(
        "processes",
        sa.Column("process_no", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("namespace_no", sa.Integer(), nullable=False),
        sa.Column("status", types["process_status"], nullable=False),
        sa.Column("status_changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous_status", types["process_status"], nullable=True),
        sa.Column("process_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("corrupted_by", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("last_event_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("aux_state", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint(
            "(status = 'error') = (detail IS NOT NULL)", name=op.f("processes_detail_check")
        ),
        sa.CheckConstraint("last_event_id >= 0", name=op.f("processes_last_event_id_check")),
        sa.CheckConstraint("length(process_id) BETWEEN 1 AND 256", name=op.f("processes_process_id_check")),
        sa.PrimaryKeyConstraint("process_no", name=op.f("processes_pkey")),
        sa.UniqueConstraint("namespace_no", "process_id", name="processes_name"),
        schema=schema,
        postgresql_with={
            "fillfactor": "70",
            "autovacuum_vacuum_scale_factor": "0.02",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
        },
    )
    op.create_index(
        "processes_broken",
        "processes",
        ["namespace_no", "created_at", "process_no"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("detail IS NOT NULL"),
    )
    op.create_index(
        "processes_by_creation",
        "processes",
        ["namespace_no", "created_at", "process_no"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("created_at > '-infinity'"),
    )
    op.create_index(
        "processes_by_metadata",
        "processes",
        ["metadata"],
        unique=False,
        schema=schema,
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'::jsonb"),
    )
    op.create_table(
        "removed_processes",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=True),
        sa.Column("process_id", sa.Text(collation="C"), nullable=True),
        sa.Column("has_events", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "(namespace IS NULL) = (process_id IS NULL)", name=op.f("removed_processes_name_check")
        ),
        sa.PrimaryKeyConstraint("process_no", name=op.f("removed_processes_pkey")),
        schema=schema,
        comment="Processes that are gone: answers that are kept for late callers, rows of large ones.",
    )
    op.create_index(
        "removed_processes_by_end", "removed_processes", ["kept_until"], unique=False, schema=schema
    )
    op.create_index(
        "removed_processes_by_name",
        "removed_processes",
        ["namespace", "process_id"],
        unique=False,
        schema=schema,
    )
    op.create_index(
        "removed_processes_with_events",
        "removed_processes",
        ["process_no"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("has_events"),
    )
    op.create_table(
        "running",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.Column("running_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("task_type", types["task_type"], nullable=False),
        sa.PrimaryKeyConstraint("process_no", name=op.f("running_pkey")),
        schema=schema,
        postgresql_with={
            "fillfactor": "70",
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
            "vacuum_truncate": "false",
        },
    )
    op.create_table(
        "schedule",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("scheduled_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("namespace_no", sa.Integer(), nullable=False),
        sa.Column("task_type", types["task_type"], nullable=False),
        sa.Column("claimable", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("process_no", "task_id", name=op.f("schedule_pkey")),
        schema=schema,
        postgresql_with={
            "fillfactor": "70",
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
            "vacuum_truncate": "false",
        },
    )
    op.create_index(
        "schedule_calls",
        "schedule",
        ["namespace_no", "scheduled_time", "task_id"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("claimable AND task_type IN ('init', 'call', 'notify', 'repair')"),
    )
    op.create_index(
        "schedule_one_timer",
        "schedule",
        [sa.literal_column("(process_no + 0)")],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("task_type IN ('timeout', 'remove')"),
    )
    op.create_index(
        "schedule_timers",
        "schedule",
        ["namespace_no", "scheduled_time", "task_id"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("claimable AND task_type IN ('timeout', 'remove')"),
    )
    op.create_table(
        "tasks",
        sa.Column("process_no", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("scheduled_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reply_to", sa.BigInteger(), nullable=True),
        sa.Column("running_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker_id", sa.BigInteger(), nullable=True),
        sa.Column("lease", sa.BigInteger(), nullable=True),
        sa.Column("last_retry_interval", sa.Interval(), nullable=True),
        sa.Column("finished_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("task_type", types["task_type"], nullable=False),
        sa.Column("status", types["task_status"], nullable=False),
        sa.Column("attempts_count", sa.Integer(), nullable=True),
        sa.Column("zombie_count", sa.Integer(), nullable=True),
        sa.Column("response", sa.LargeBinary(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(collation="C"), nullable=True),
        sa.Column("request_hash", sa.LargeBinary(), nullable=True),
        sa.Column("args", sa.LargeBinary(), nullable=True),
        sa.Column("context", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint(
            "(finished_time IS NOT NULL) = (status IN ('finished', 'error', 'cancelled'))",
            name=op.f("tasks_finished_time_check"),
        ),
        sa.PrimaryKeyConstraint("process_no", "task_id", name=op.f("tasks_pkey")),
        schema=schema,
        postgresql_with={
            "fillfactor": "50",
            "autovacuum_vacuum_scale_factor": "0.02",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
        },
    )
    op.create_index(
        "tasks_idempotency_key",
        "tasks",
        [sa.literal_column("(process_no + 0)"), "idempotency_key"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("namespaces", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("step_timeouts", postgresql.ARRAY(sa.Interval()), nullable=False),
        sa.Column("lease_age", sa.Interval(), nullable=False),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column(
            "free_slots",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("beats", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "cardinality(step_timeouts) = cardinality(namespaces)", name=op.f("workers_step_timeouts_check")
        ),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("workers_pkey")),
        schema=schema,
        comment="One row per live worker or collector process, renewed by its heartbeat thread.",
        postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.0"},
    )
    for name, query in _VIEWS.items():
        op.execute(in_schema(f"CREATE VIEW progressor.{name} AS {query}", schema))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for name in _VIEWS:
        op.execute(in_schema(f"DROP VIEW progressor.{name}", schema))
    for table in (
        *("workers", "tasks", "schedule", "running", "removed_processes"),
        *("processes", "namespaces", "events"),
    ):
        op.drop_table(table, schema=schema)
    for name in _TYPES:
        op.execute(in_schema(f"DROP TYPE progressor.{name}", schema))
