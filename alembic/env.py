"""Alembic's entry: it runs on the connection that `progressor.storage.migrations` opened.

One transaction for all, under one advisory lock: several processes may migrate at once. Called by
a developer (`alembic revision --autogenerate`), it opens PROGRESSOR_DATABASE_URL itself.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from alembic import context

from progressor.storage.migrations import connect
from progressor.storage.schema import metadata

with ExitStack() as stack:
    connection = context.config.attributes.get("connection")
    if connection is None and not context.is_offline_mode():
        connection = stack.enter_context(connect(os.environ["PROGRESSOR_DATABASE_URL"]))
    context.configure(
        connection=connection,
        dialect_name=None if connection is not None else "postgresql",
        target_metadata=metadata,
        compare_type=True,
        compare_server_default=True,
        literal_binds=connection is None,
    )
    with context.begin_transaction():
        context.run_migrations()
