"""Databases for tests of the test kit, two at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Databases


@pytest.fixture
def second_dsn(databases: Databases, template: str) -> Iterator[str]:
    """Another fresh database with all tables."""
    name = databases.make(template)
    yield databases.dsn(name)
    databases.drop(name)
