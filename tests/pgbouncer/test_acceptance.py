"""The public API behind PgBouncer in transaction mode: the tests of `tests/acceptance`, as they stand."""

import pytest

from tests.acceptance.test_client import *  # noqa: F403 - the tests are run again, from here
from tests.acceptance.test_engines import *  # noqa: F403
from tests.acceptance.test_expiry import *  # noqa: F403
from tests.acceptance.test_groups import *  # noqa: F403
from tests.acceptance.test_idempotency import *  # noqa: F403
from tests.acceptance.test_mailbox import *  # noqa: F403
from tests.acceptance.test_messages import *  # noqa: F403
from tests.acceptance.test_own_sql import *  # noqa: F403
from tests.acceptance.test_pauses import *  # noqa: F403
from tests.acceptance.test_priority import *  # noqa: F403
from tests.acceptance.test_rates import *  # noqa: F403
from tests.acceptance.test_recurring_timers import *  # noqa: F403
from tests.acceptance.test_redo import *  # noqa: F403
from tests.acceptance.test_remove import *  # noqa: F403
from tests.acceptance.test_repair import *  # noqa: F403
from tests.acceptance.test_retries import *  # noqa: F403
from tests.acceptance.test_schedules import *  # noqa: F403
from tests.acceptance.test_timers import *  # noqa: F403
from tests.pgbouncer.conftest import PgBouncer


@pytest.fixture
def dsn(dsn: str, pooler: PgBouncer) -> str:
    """Through the pooler."""
    return pooler.dsn(dsn)
