"""The stage on which those who write to the feed and who read it meet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from psycopg.conninfo import make_conninfo

from tests.conftest import Databases
from tests.interleavings.feed_stage import Stage


@pytest.fixture(scope="module")
def stage(databases: Databases, template: str) -> Iterator[Stage]:
    """One database for all meetings of a module."""
    name = databases.make(template)
    # The disk is not what is examined here.
    dsn = make_conninfo(databases.dsn(name), options="-c synchronous_commit=off")
    with asyncio.Runner() as runner:
        made = Stage(dsn, runner)
        yield made
        made.close()
    databases.drop(name)
