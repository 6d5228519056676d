"""Databases of tests: copies of a migrated template, each for one test.

Rule: no database is touched that was not made here. They are dropped in lots, because each drop begins with
a checkpoint.
"""

from __future__ import annotations

import secrets
from typing import Self
from urllib.parse import urlsplit

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
            migrations.upgrade(self._dsn(template))
            self._template = template
        return self._dsn(self._create(self._template))

    def drop(self, dsn: str) -> None:
        """Drop a database that was made here, now or with some others; its connections are ended."""
        self._finished.append(parsed(dsn)["dbname"])
        if len(self._finished) >= _LOT:
            self._drop_finished()

    def _create(self, template: str) -> str:
        name = _PREFIX + secrets.token_hex(8)
        # Files are copied as they are: where nobody waits for a disk, that is the faster way.
        self._admin.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        # Nobody misses what a crash of the server loses.
        self._admin.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
        return name

    def _drop_finished(self) -> None:
        while self._finished:
            self._admin.exec_driver_sql(f"DROP DATABASE IF EXISTS {self._finished.pop()} WITH (FORCE)")

    def _dsn(self, name: str) -> str:
        if "://" in self._server:
            return urlsplit(self._server)._replace(path=f"/{name}").geturl()
        return with_database(self._server, name)
