"""Databases of tests: copies of a migrated template, each for one test.

Rule: no database is touched that was not made here. They are dropped in lots, because each drop begins with
a checkpoint.
"""

from __future__ import annotations

import secrets
from typing import Self

from progressor.errors import InvalidRequest
from progressor.storage import migrations, parsed, with_database

_PREFIX = "progressor_test_"
_LOT = 16


class TestDatabases:
    """The databases of one OS process on a server, whose role may create databases.

    The first one is migrated, and copied for all others, which takes about 0.1 s.
    """

    __test__ = False  # pytest collects classes of such names

    def __init__(self, server: str) -> None:
        self._server = server
        self._admin = migrations.connect(server).execution_options(isolation_level="AUTOCOMMIT")
        self._template: str | None = None
        self._made: set[str] = set()
        self._finished: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._template is not None:
            self._finished.append(self._template)
        self._drop_finished()
        self._admin.close()

    def make(self) -> str:
        """Return the DSN of a fresh database with all tables."""
        if self._template is None:
            template = self._create("template1")
            migrations.upgrade(with_database(self._server, template))
            self._template = template
        return with_database(self._server, self._create(self._template))

    def drop(self, dsn: str) -> None:
        """Drop a database that was made here, now or with some others; its connections are ended."""
        name = parsed(dsn).get("dbname")
        if name not in self._made:
            raise InvalidRequest(f"database {name} was not made for these tests", field="dsn")
        self._finished.append(name)
        if len(self._finished) >= _LOT:
            self._drop_finished()

    def _create(self, template: str) -> str:
        name = _PREFIX + secrets.token_hex(8)
        # Files are copied as they are: where nobody waits for a disk, that is the faster way.
        self._admin.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        self._made.add(name)
        # Nobody misses what a crash of the server loses.
        self._admin.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
        return name

    def _drop_finished(self) -> None:
        while self._finished:
            self._admin.exec_driver_sql(f"DROP DATABASE IF EXISTS {self._finished.pop()} WITH (FORCE)")
