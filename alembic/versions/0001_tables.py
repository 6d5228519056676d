"""The tables of the engine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("process_id", sa.Text(collation="C"), nullable=False),
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
        sa.PrimaryKeyConstraint("namespace", "process_id", "event_id", name=op.f("events_pkey")),
    )
    op.create_table(
        "namespaces",
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
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("namespaces_pkey")),
        comment="What the workers that serve a namespace say of it, for clients without user code.",
    )
    op.create_table(
        "processes",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("process_id", sa.Text(collation="C"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("previous_status", sa.Text(), nullable=True),
        sa.Column("status_changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("aux_state", sa.LargeBinary(), nullable=True),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("corrupted_by", sa.BigInteger(), nullable=True),
        sa.Column("last_event_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("status IN ('init', 'running', 'error')", name=op.f("processes_status_check")),
        sa.CheckConstraint(
            "(status = 'error') = (detail IS NOT NULL)", name=op.f("processes_detail_check")
        ),
        sa.CheckConstraint("last_event_id >= 0", name=op.f("processes_last_event_id_check")),
        sa.CheckConstraint("length(process_id) BETWEEN 1 AND 256", name=op.f("processes_process_id_check")),
        sa.PrimaryKeyConstraint("namespace", "process_id", name=op.f("processes_pkey")),
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
        ["namespace", "created_at", "process_id"],
        unique=False,
        postgresql_where=sa.text("detail IS NOT NULL"),
    )
    op.create_index(
        "processes_by_creation",
        "processes",
        ["namespace", "created_at", "process_id"],
        unique=False,
        postgresql_where=sa.text("process_id <> ''"),
    )
    op.create_index(
        "processes_by_metadata",
        "processes",
        ["metadata"],
        unique=False,
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'::jsonb"),
    )
    op.create_table(
        "running",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("process_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.Text(collation="C"), nullable=False),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.Column("running_time", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "process_id", name=op.f("running_pkey")),
        postgresql_with={
            "fillfactor": "50",
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
        },
    )
    op.create_index("running_by_worker", "running", ["worker_id"], unique=False)
    op.create_table(
        "schedule",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("process_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.BigInteger(), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("scheduled_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimable", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "status = 'waiting' OR NOT claimable", name=op.f("schedule_blocked_not_claimable_check")
        ),
        sa.CheckConstraint(
            "status = 'waiting' OR task_type IN ('timeout', 'remove')",
            name=op.f("schedule_blocked_is_timer_check"),
        ),
        sa.CheckConstraint("status IN ('waiting', 'blocked')", name=op.f("schedule_status_check")),
        sa.PrimaryKeyConstraint("namespace", "process_id", "task_id", name=op.f("schedule_pkey")),
        postgresql_with={
            "fillfactor": "50",
            "autovacuum_vacuum_scale_factor": "0.0",
            "autovacuum_vacuum_threshold": "1000",
            "autovacuum_vacuum_cost_delay": "0",
        },
    )
    op.create_index(
        "schedule_calls",
        "schedule",
        ["namespace", "scheduled_time", "task_id"],
        unique=False,
        postgresql_where=sa.text("claimable AND task_type IN ('init', 'call', 'notify', 'repair')"),
    )
    op.create_index(
        "schedule_one_timer",
        "schedule",
        ["namespace", "process_id"],
        unique=True,
        postgresql_where=sa.text("task_type IN ('timeout', 'remove')"),
    )
    op.create_index(
        "schedule_timers",
        "schedule",
        ["namespace", "scheduled_time", "task_id"],
        unique=False,
        postgresql_where=sa.text("claimable AND task_type IN ('timeout', 'remove')"),
    )
    op.create_table(
        "tasks",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("process_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("scheduled_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("running_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("args", sa.LargeBinary(), nullable=True),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("idempotency_key", sa.Text(collation="C"), nullable=True),
        sa.Column("request_hash", sa.LargeBinary(), nullable=True),
        sa.Column("response", sa.LargeBinary(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("last_retry_interval", sa.Interval(), nullable=True),
        sa.Column("attempts_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("context", sa.LargeBinary(), nullable=True),
        sa.Column("worker_id", sa.Text(collation="C"), nullable=True),
        sa.Column("lease", sa.BigInteger(), nullable=True),
        sa.Column("orphaned", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "(finished_time IS NOT NULL) = (status IN ('finished', 'error', 'cancelled'))",
            name=op.f("tasks_finished_time_check"),
        ),
        sa.CheckConstraint(
            "status IN ('waiting', 'running', 'finished', 'error', 'cancelled')",
            name=op.f("tasks_status_check"),
        ),
        sa.CheckConstraint(
            "task_type IN ('init', 'call', 'notify', 'repair', 'timeout', 'remove')",
            name=op.f("tasks_task_type_check"),
        ),
        sa.PrimaryKeyConstraint("namespace", "process_id", "task_id", name=op.f("tasks_pkey")),
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
        ["namespace", "process_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "tasks_orphaned",
        "tasks",
        ["namespace", "process_id", "task_id"],
        unique=False,
        postgresql_where=sa.text("orphaned"),
    )
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.Text(collation="C"), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("namespaces", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "free_slots",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("workers_pkey")),
        comment="One row per live worker process, renewed by its heartbeat thread.",
        postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.0"},
    )


def downgrade() -> None:
    op.drop_table("workers")
    op.drop_index("tasks_orphaned", table_name="tasks", postgresql_where=sa.text("orphaned"))
    op.drop_index(
        "tasks_idempotency_key",
        table_name="tasks",
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.drop_table("tasks")
    op.drop_index(
        "schedule_timers",
        table_name="schedule",
        postgresql_where=sa.text("claimable AND task_type IN ('timeout', 'remove')"),
    )
    op.drop_index(
        "schedule_one_timer",
        table_name="schedule",
        postgresql_where=sa.text("task_type IN ('timeout', 'remove')"),
    )
    op.drop_index(
        "schedule_calls",
        table_name="schedule",
        postgresql_where=sa.text("claimable AND task_type IN ('init', 'call', 'notify', 'repair')"),
    )
    op.drop_table("schedule")
    op.drop_index("running_by_worker", table_name="running")
    op.drop_table("running")
    op.drop_index(
        "processes_by_metadata",
        table_name="processes",
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'::jsonb"),
    )
    op.drop_index(
        "processes_by_creation", table_name="processes", postgresql_where=sa.text("process_id <> ''")
    )
    op.drop_index(
        "processes_broken", table_name="processes", postgresql_where=sa.text("detail IS NOT NULL")
    )
    op.drop_table("processes")
    op.drop_table("namespaces")
    op.drop_table("events")
