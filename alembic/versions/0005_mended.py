"""The parts that a database lacks if an earlier text of 0001 or 0003 made it. Both were edited later.

Each part does nothing where the schema is whole.
"""

from __future__ import annotations

from alembic import op

from progressor.storage.statements import in_schema

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
# Older releases run on beside it: they write all that is new here.
additive = True

_BULKS = """
ALTER TABLE progressor.bulks ADD COLUMN IF NOT EXISTS still_since timestamptz NOT NULL DEFAULT now()
"""
_NO_DEFAULT = "ALTER TABLE progressor.bulks ALTER COLUMN still_since DROP DEFAULT"
_TASKS = """
ALTER TABLE progressor.tasks
    ALTER COLUMN attempts_count DROP NOT NULL, ALTER COLUMN attempts_count DROP DEFAULT
"""
_SHRINKING = ("schedule", "running", "bulk_repairs")


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    parameters = (f"ALTER TABLE progressor.{name} SET (vacuum_truncate = false)" for name in _SHRINKING)
    for statement in (_BULKS, _NO_DEFAULT, _TASKS, *parameters):
        op.execute(in_schema(statement, schema))


def downgrade() -> None:
    """Leave all of it: the tables of 0004 are the same."""
