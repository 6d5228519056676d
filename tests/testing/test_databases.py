"""Databases of tests: made by any DSN of a server, beside those that are there."""

from __future__ import annotations

from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor import InvalidRequest
from progressor.storage import with_database
from progressor.testing.databases import TestDatabases
from tests.conftest import Databases


def _spelt(spelling: str, password: str, parts: dict[str, str]) -> str:
    match spelling:
        case "key=value":
            return make_conninfo("", **{**parts, "password": password})
        case "path":
            rest = {**parts, "password": password}
            return f"postgresql:///{rest.pop('dbname')}?{urlencode(rest)}"
    user, rest = parts["user"], {key: value for key, value in parts.items() if key != "user"}
    # Not encoded, as people write it.
    return f"{spelling}://{user}:{password}@/?{urlencode(rest)}"


@pytest.mark.parametrize("spelling", ["postgresql", "postgresql+psycopg", "path", "key=value"])
@pytest.mark.parametrize("password", ["s3[cret", "s3]℀ü", "s3'c\\ret"])
def test_a_database_that_a_dsn_names_is_left_alone(
    server: str, databases: Databases, spelling: str, password: str
) -> None:
    """Wherever it names it: that one gets no tables, and is there afterwards."""
    named = databases.make()
    parts = {key: str(value) for key, value in conninfo_to_dict(server).items()}
    with TestDatabases(_spelt(spelling, password, {**parts, "dbname": named})) as made:
        dsn = made.make()
        with psycopg.connect(dsn) as connection:
            assert connection.info.dbname.startswith("progressor_test_")
            assert connection.info.password == password
            assert connection.execute("SELECT FROM progressor.tasks").fetchall() == []
        made.drop(dsn)
    with psycopg.connect(databases.dsn(named)) as connection:
        assert connection.execute("SELECT FROM pg_namespace WHERE nspname = 'progressor'").fetchall() == []
    databases.drop(named)


def test_a_database_that_was_not_made_there_is_not_dropped(server: str, databases: Databases) -> None:
    """Nor one that its DSN does not name."""
    other = databases.make()
    with TestDatabases(server) as made:
        for dsn in (with_database(server, other), "host=/tmp"):
            with pytest.raises(InvalidRequest, match="was not made for these tests"):
                made.drop(dsn)
    with psycopg.connect(databases.dsn(other)):
        databases.drop(other)
