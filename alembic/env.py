"""Alembic's entry: it runs on the connection that `progressor.storage.migrations` opened.

One transaction for all, under one advisory lock: several processes may migrate at once. Called by
a developer (`alembic revision --autogenerate`), it opens PROGRESSOR_DATABASE_URL itself. The version
table stands in the schema of the tables; migrations ask `op.get_context().version_table_schema` for it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from alembic import context

from progressor.config import DEFAULT_SCHEMA
from progressor.storage.migrations import connect, head, statement_of_oldest
from progressor.storage.schema import metadata

with ExitStack() as stack:
    connection = context.config.attributes.get("connection")
    if connection is None and not context.is_offline_mode():
        connection = stack.enter_context(connect(os.environ["PROGRESSOR_DATABASE_URL"]))
    schema = context.config.attributes.get("schema", DEFAULT_SCHEMA)
    context.configure(
        connection=connection,
        dialect_name=None if connection is not None else "postgresql",
        target_metadata=metadata,
        version_table_schema=schema,
        # Of all that the database has, compare what is in our schema.
        include_schemas=True,
        # It has no name there for a role whose search_path begins with it.
        include_name=lambda name, kind, _parents: kind != "schema" or name in (schema, None),
        compare_type=True,
        compare_server_default=True,
        literal_binds=connection is None,
    )
    with context.begin_transaction():
        if context.is_offline_mode():
            # Asked first: the right to make one is not needed where somebody has made it.
            context.execute(
                f"DO $$ BEGIN IF to_regnamespace('\"{schema}\"') IS NULL "
                f'THEN CREATE SCHEMA "{schema}"; END IF; END $$'
            )
        context.run_migrations()
        offline = context.is_offline_mode()
        revision = head() if offline else context.get_context().get_current_revision()
        if revision is not None:
            context.execute(statement_of_oldest(revision, schema))
