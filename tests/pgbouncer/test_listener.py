"""The public API behind PgBouncer in transaction mode, with a listener past it: hints come as ever."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.acceptance.conftest import Options
from tests.acceptance.test_client import *  # noqa: F403 - the tests are run again, from here
from tests.acceptance.test_engines import *  # noqa: F403
from tests.acceptance.test_idempotency import *  # noqa: F403
from tests.acceptance.test_mailbox import *  # noqa: F403
from tests.pgbouncer.conftest import PgBouncer


@pytest.fixture
def mode(dsn: str, server: str) -> Options:
    """Hints are heard past the pooler, in the same database."""
    return {"listen_database_url": make_conninfo(server, dbname=conninfo_to_dict(dsn)["dbname"])}


@pytest.fixture
def dsn(dsn: str, pooler: PgBouncer) -> str:
    """Through the pooler."""
    return pooler.dsn(dsn)
